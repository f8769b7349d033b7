//! The counts of a rate limiter, and the time at which the next call may start.

use std::time::Duration;

use tokio::time::Instant;

use super::RateLimiterOptions;
use super::limiter_share::{LimitShare, OpeningTurn, ShareLevels};
use super::rate_bucket::RateBucket;

/// The longest pause, whatever the options say: `Instant` cannot represent much later times.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The difference below which a closing of other processes is the one that this process knows.
const SAME_CLOSING: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct LimiterState {
    pub(super) running: usize,
    pub(super) waiting: usize,
    /// The estimated tokens of the calls that run or wait.
    pub(super) expected_tokens: u64,
    pub(super) requests: RateBucket,
    pub(super) tokens: RateBucket,
    /// The part of the limits that this process has; `None` if it has them alone.
    pub(super) share: Option<LimitShare>,
    /// The number of the last handle of the share.
    pub(super) share_number: u64,
    /// The turn of this process when the limiter opens.
    pub(super) turn: OpeningTurn,
    pub(super) closed_until: Option<Instant>,
    /// The end of the last closing that the provider asked this process for.
    pub(super) own_closed_until: Option<Instant>,
    /// The end of the last closing, also when it is over.
    last_closed_until: Option<Instant>,
    /// The time of the last closing. Errors of calls that started earlier are outdated.
    closed_at: Option<Instant>,
    /// The number of closings since the last success.
    closed_in_a_row: u32,
    ramp_up: Option<RampUp>,
}

/// The gradual opening after a closing.
#[derive(Debug)]
struct RampUp {
    started_at: Instant,
    entered: usize,
    succeeded: usize,
}

impl RampUp {
    /// Returns the number of calls that may have started by now.
    fn allowance(&self, step: Duration, now: Instant) -> usize {
        1 + 2 * self.succeeded + self.steps(step, now)
    }

    fn steps(&self, step: Duration, now: Instant) -> usize {
        let steps =
            now.saturating_duration_since(self.started_at).as_millis() / step.as_millis().max(1);
        usize::try_from(steps).unwrap_or(usize::MAX / 4)
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum AdmitResult {
    Admitted {
        entered_at: Instant,
        charged: u64,
    },
    NotBefore(Instant),
    /// When a call ends, or when the share changes.
    WhenChanged,
}

impl LimiterState {
    pub(super) fn new(options: &RateLimiterOptions, now: Instant) -> Self {
        Self {
            running: 0,
            waiting: 0,
            expected_tokens: 0,
            requests: RateBucket::full(options.requests_per_minute.unwrap_or_default(), now),
            tokens: RateBucket::full(options.tokens_per_minute.unwrap_or_default(), now),
            share: None,
            share_number: 0,
            turn: OpeningTurn::default(),
            closed_until: None,
            own_closed_until: None,
            last_closed_until: None,
            closed_at: None,
            closed_in_a_row: 0,
            ramp_up: None,
        }
    }

    /// Returns the limits of this process.
    pub(super) fn limits(&self, options: &RateLimiterOptions) -> LimitShare {
        self.share.unwrap_or_else(|| LimitShare::all(options))
    }

    /// Admits the first waiting call, or returns the time of the next attempt.
    pub(super) fn admit(
        &mut self,
        options: &RateLimiterOptions,
        estimate: u64,
        now: Instant,
    ) -> AdmitResult {
        if let Some(until) = self.closed_until {
            let until = until + self.turn.delay(options.ramp_up_interval);
            if now < until {
                return AdmitResult::NotBefore(until);
            }
            self.closed_until = None;
            self.ramp_up = Some(RampUp { started_at: now, entered: 0, succeeded: 0 });
        }
        let limits = self.limits(options);
        if self.running as u64 >= limits.running {
            return AdmitResult::WhenChanged;
        }
        if let Some(time) = self.ramp_up_at(options, limits.running, now) {
            return AdmitResult::NotBefore(time);
        }
        let charged = options.tokens_per_minute.map_or(0, |max| estimate.min(max));
        let rates = [
            options
                .requests_per_minute
                .map(|_| (limits.requests_per_minute, 1, &mut self.requests)),
            options
                .tokens_per_minute
                .map(|_| (limits.tokens_per_minute, charged, &mut self.tokens)),
        ];
        for (limit, needed, bucket) in rates.into_iter().flatten() {
            if limit == 0 {
                return AdmitResult::WhenChanged;
            }
            // A request above the share waits for all of it, and is in debt afterwards.
            if let Some(time) = bucket.available_at(limit, needed.min(limit), now) {
                return AdmitResult::NotBefore(time);
            }
        }
        if options.requests_per_minute.is_some() {
            self.requests.level -= 1.0;
        }
        self.tokens.level -= charged as f64;
        self.running += 1;
        self.expected_tokens += estimate;
        if let Some(ramp_up) = &mut self.ramp_up {
            ramp_up.entered += 1;
        }
        AdmitResult::Admitted { entered_at: now, charged }
    }

    /// Returns the time at which a gradually opening limiter admits the next call. It is fully open
    /// once as many calls have succeeded as may run.
    fn ramp_up_at(
        &mut self,
        options: &RateLimiterOptions,
        max_running: u64,
        now: Instant,
    ) -> Option<Instant> {
        // All processes together admit one more call in each interval.
        let step = options.ramp_up_interval.max(Duration::from_millis(1));
        let step = step.saturating_mul(self.turn.processes.max(1)).min(PAUSE_MAX);
        let ramp_up = self.ramp_up.as_ref()?;
        let steps = ramp_up.steps(step, now);
        if ramp_up.succeeded.saturating_add(steps) as u64 >= max_running {
            self.ramp_up = None;
            return None;
        }
        if ramp_up.entered < ramp_up.allowance(step, now) {
            return None;
        }
        let next = u32::try_from(steps + 1).unwrap_or(u32::MAX);
        ramp_up.started_at.checked_add(step.saturating_mul(next)).or(Some(now + PAUSE_MAX))
    }

    pub(super) fn record_success(&mut self, entered_at: Instant, charged: u64, used: u64) {
        self.tokens.level += charged as f64 - used as f64;
        if self.entered_before_close(entered_at) {
            return;
        }
        self.closed_in_a_row = 0;
        if let Some(ramp_up) = &mut self.ramp_up {
            ramp_up.succeeded += 1;
        }
    }

    pub(super) fn refund(&mut self, charged: u64) {
        self.tokens.level += charged as f64;
    }

    /// Closes the limiter. Calls that ran together may all be rejected, but only the first
    /// rejection makes the pause longer.
    pub(super) fn close(
        &mut self,
        options: &RateLimiterOptions,
        entered_at: Instant,
        requested: Option<Duration>,
        now: Instant,
    ) {
        let is_outdated = self.entered_before_close(entered_at);
        if is_outdated && requested.is_none() {
            return;
        }
        let doubled = options.min_pause.saturating_mul(1 << self.closed_in_a_row.min(16));
        let pause = requested.unwrap_or(doubled).min(options.max_pause).min(PAUSE_MAX);
        let until = now + pause;
        if self.closed_until.is_none_or(|closed| closed < until) {
            self.closed_until = Some(until);
        }
        self.own_closed_until = self.own_closed_until.max(Some(until));
        self.last_closed_until = self.last_closed_until.max(Some(until));
        if !is_outdated {
            self.closed_in_a_row += 1;
            self.closed_at = Some(now);
            self.ramp_up = None;
        }
    }

    /// Closes the limiter because the provider has rejected a call of another process. A closing that is
    /// known changes nothing.
    pub(super) fn close_with_others(&mut self, until: Instant, now: Instant) {
        if self.last_closed_until.is_some_and(|known| until <= known + SAME_CLOSING) {
            return;
        }
        self.closed_until = self.closed_until.max(Some(until));
        self.last_closed_until = Some(until);
        self.closed_at = Some(now);
        self.ramp_up = None;
    }

    /// Lowers the share, and returns the levels of what is given up. Calls that run stay, and none takes
    /// their place while there are too many.
    pub(super) fn lower_share(&mut self, to: LimitShare, now: Instant) -> ShareLevels {
        let Some(share) = self.share else { return ShareLevels::default() };
        let to = to.min(share);
        self.share = Some(to);
        ShareLevels {
            requests: self.requests.give_up(share.requests_per_minute, to.requests_per_minute, now),
            tokens: self.tokens.give_up(share.tokens_per_minute, to.tokens_per_minute, now),
        }
    }

    fn entered_before_close(&self, entered_at: Instant) -> bool {
        self.closed_at.is_some_and(|closed| entered_at <= closed)
    }
}
