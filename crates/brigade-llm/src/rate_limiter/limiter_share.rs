//! The part of a provider's limits that one of several processes has.
//!
//! ```text
//! process ─ LimiterShare::lower ─> report ─> whoever divides the limits
//!         <─ LimiterShare::grant ─────────── share, closings of all processes
//! ```

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::{RateLimiter, RateLimiterOptions};

/// The longest time over which the processes spread their first calls after a closing.
const SPREAD_MAX: Duration = Duration::from_secs(10);

/// The processes that use the same providers, and keep the limits of each provider together.
pub trait SharedLimits: fmt::Debug + Send + Sync + 'static {
    /// Divides the limits of a provider from now on. The limiter admits no call before it has a share.
    fn divide(&self, provider: &str, share: LimiterShare);
}

/// Amounts of the limits of a provider. An amount that has no limit is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitShare {
    /// Calls that run at once.
    pub running: u64,
    pub requests_per_minute: u64,
    pub tokens_per_minute: u64,
}

impl LimitShare {
    /// Returns the limits of all processes together.
    pub(super) fn all(options: &RateLimiterOptions) -> Self {
        Self {
            running: options.max_running.max(1) as u64,
            requests_per_minute: options.requests_per_minute.unwrap_or_default(),
            tokens_per_minute: options.tokens_per_minute.unwrap_or_default(),
        }
    }

    pub(super) fn min(self, other: Self) -> Self {
        Self {
            running: self.running.min(other.running),
            requests_per_minute: self.requests_per_minute.min(other.requests_per_minute),
            tokens_per_minute: self.tokens_per_minute.min(other.tokens_per_minute),
        }
    }
}

/// Requests and tokens that can be used at once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShareLevels {
    pub requests: f64,
    pub tokens: f64,
}

/// The report of a process that divides limits with others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareReport {
    /// The most that the process uses until the next grant: its share, and the calls that run.
    pub held: LimitShare,
    /// The levels of what was given up.
    pub given_up: ShareLevels,
    /// The remaining time for which the provider refuses calls, as it told this process.
    pub closed_for: Option<Duration>,
}

/// The demand for calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallDemand {
    /// The calls that run or wait.
    pub calls: u64,
    /// Those that wait.
    pub waiting: u64,
    /// The expected tokens of all of them.
    pub tokens: u64,
}

/// A share that was granted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareGrant {
    pub share: LimitShare,
    /// The levels that come with what was added.
    pub added: ShareLevels,
    /// The time for which the provider refuses calls, as it told any process.
    pub closed_for: Option<Duration>,
    pub turn: OpeningTurn,
}

/// The turn of a process among those that wait for the end of a closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpeningTurn {
    /// The number of processes with an earlier turn.
    pub earlier: u32,
    pub processes: u32,
}

impl Default for OpeningTurn {
    fn default() -> Self {
        Self { earlier: 0, processes: 1 }
    }
}

impl OpeningTurn {
    /// Returns the time from the end of a closing to the first call of this process.
    pub(super) fn delay(self, interval: Duration) -> Duration {
        interval.min(SPREAD_MAX / self.processes.max(1)) * self.earlier.min(self.processes)
    }
}

/// The handle of whoever divides the limits of a provider.
#[derive(Debug)]
pub struct LimiterShare {
    limiter: RateLimiter,
    /// The number of the handle. A limiter obeys the last one.
    number: u64,
}

impl RateLimiter {
    /// Begins to divide the limits with other processes. An earlier handle has no effect any more.
    pub fn share(&self) -> LimiterShare {
        let mut state = self.lock_state();
        let now = Instant::now();
        // The levels come with the first grant.
        state.share.get_or_insert_with(|| LimitShare::all(&self.0.options));
        state.lower_share(LimitShare::default(), now);
        state.share_number += 1;
        LimiterShare { limiter: self.clone(), number: state.share_number }
    }
}

impl LimiterShare {
    /// Returns the limits of all processes together.
    pub fn limits(&self) -> LimitShare {
        LimitShare::all(&self.limiter.0.options)
    }

    /// Returns false if the limiter obeys a later handle.
    pub fn is_current(&self) -> bool {
        self.limiter.lock_state().share_number == self.number
    }

    pub fn demand(&self) -> CallDemand {
        let state = self.limiter.lock_state();
        CallDemand {
            calls: (state.running + state.waiting) as u64,
            waiting: state.waiting as u64,
            tokens: state.expected_tokens,
        }
    }

    /// Gives up what is above a share, except running calls. `None` gives up nothing.
    pub fn lower(&self, to: Option<LimitShare>) -> ShareReport {
        let mut state = self.limiter.lock_state();
        let now = Instant::now();
        let given_up = match to {
            Some(to) if state.share_number == self.number => state.lower_share(to, now),
            _ => ShareLevels::default(),
        };
        let share = state.share.unwrap_or_default();
        let closed = state.own_closed_until.and_then(|until| until.checked_duration_since(now));
        ShareReport {
            held: LimitShare { running: share.running.max(state.running as u64), ..share },
            given_up,
            closed_for: closed.filter(|remaining| !remaining.is_zero()),
        }
    }

    /// Sets the share and the closing of all processes.
    pub fn grant(&self, grant: &ShareGrant) {
        let mut state = self.limiter.lock_state();
        if state.share_number != self.number {
            return;
        }
        let now = Instant::now();
        let before = state.share.unwrap_or_default();
        state.requests.refill(before.requests_per_minute, now);
        state.tokens.refill(before.tokens_per_minute, now);
        state.requests.level += grant.added.requests;
        state.tokens.level += grant.added.tokens;
        state.share = Some(grant.share);
        state.turn = grant.turn;
        if let Some(pause) = grant.closed_for {
            state.close_with_others(now + pause, now);
        }
        drop(state);
        self.limiter.0.changed.notify_one();
    }

    /// Waits until a call begins to wait, or the provider has rejected a call of this process.
    pub async fn wait_for_change(&self) {
        self.limiter.0.share_needed.notified().await;
    }
}
