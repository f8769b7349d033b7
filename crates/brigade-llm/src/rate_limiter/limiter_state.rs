//! The counts behind a gate, and when the next call may enter.

use std::time::Duration;

use tokio::time::Instant;

use super::RateLimiterOptions;

const SECONDS_PER_MINUTE: f64 = 60.0;
/// Whatever the options say: times further away cannot be told.
const PAUSE_MAX: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug)]
pub(super) struct LimiterState {
    pub(super) running: usize,
    pub(super) waiting: usize,
    /// Tokens that may be used now; less than none after calls that used more than was thought.
    tokens: f64,
    refilled_at: Instant,
    pub(super) closed_until: Option<Instant>,
    /// When it was last closed: what calls that entered earlier say is old news.
    closed_at: Option<Instant>,
    /// Closings since the last success.
    closed_in_a_row: u32,
    ramp_up: Option<RampUp>,
}

/// The gate is open again, but not for all at once.
#[derive(Debug)]
struct RampUp {
    started_at: Instant,
    entered: usize,
    succeeded: usize,
}

impl RampUp {
    /// How many may have entered by now.
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
    /// Not before this time.
    NotBefore(Instant),
    WhenCallEnds,
}

impl LimiterState {
    pub(super) fn new(options: &RateLimiterOptions, now: Instant) -> Self {
        Self {
            running: 0,
            waiting: 0,
            tokens: options.tokens_per_minute.unwrap_or_default() as f64,
            refilled_at: now,
            closed_until: None,
            closed_at: None,
            closed_in_a_row: 0,
            ramp_up: None,
        }
    }

    /// Lets the first in line in, or says when to ask again.
    pub(super) fn admit(
        &mut self,
        options: &RateLimiterOptions,
        estimate: u64,
        now: Instant,
    ) -> AdmitResult {
        if let Some(until) = self.closed_until {
            if now < until {
                return AdmitResult::NotBefore(until);
            }
            self.closed_until = None;
            self.ramp_up = Some(RampUp { started_at: now, entered: 0, succeeded: 0 });
        }
        if self.running >= options.max_running.max(1) {
            return AdmitResult::WhenCallEnds;
        }
        if let Some(time) = self.ramp_up_at(options, now) {
            return AdmitResult::NotBefore(time);
        }
        let charged = options.tokens_per_minute.map_or(0, |most| estimate.min(most));
        if let Some(time) = self.tokens_available_at(options, charged, now) {
            return AdmitResult::NotBefore(time);
        }
        self.tokens -= charged as f64;
        self.running += 1;
        if let Some(opening) = &mut self.ramp_up {
            opening.entered += 1;
        }
        AdmitResult::Admitted { entered_at: now, charged }
    }

    /// When the next may enter a gate that opens gradually. Once as many have succeeded as may run,
    /// it is open.
    fn ramp_up_at(&mut self, options: &RateLimiterOptions, now: Instant) -> Option<Instant> {
        let opening = self.ramp_up.as_ref()?;
        let steps = opening.steps(options.ramp_up_interval, now);
        if opening.succeeded.saturating_add(steps) >= options.max_running {
            self.ramp_up = None;
            return None;
        }
        if opening.entered < opening.allowance(options.ramp_up_interval, now) {
            return None;
        }
        let step = options.ramp_up_interval.max(Duration::from_millis(1));
        let next = u32::try_from(steps + 1).unwrap_or(u32::MAX);
        opening.started_at.checked_add(step.saturating_mul(next)).or(Some(now + PAUSE_MAX))
    }

    /// When there are so many tokens, unless there are now.
    fn tokens_available_at(
        &mut self,
        options: &RateLimiterOptions,
        needed: u64,
        now: Instant,
    ) -> Option<Instant> {
        let most = options.tokens_per_minute? as f64;
        let elapsed = now.saturating_duration_since(self.refilled_at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * most / SECONDS_PER_MINUTE).min(most);
        self.refilled_at = now;
        let missing = needed as f64 - self.tokens;
        // Less than a whole token is the rounding of refills.
        if missing < 1.0 {
            return None;
        }
        let wait = (missing * SECONDS_PER_MINUTE / most).min(3600.0);
        Some(now + Duration::from_secs_f64(wait) + Duration::from_millis(1))
    }

    pub(super) fn record_success(&mut self, entered_at: Instant, charged: u64, used: u64) {
        self.tokens += charged as f64 - used as f64;
        if self.entered_before_close(entered_at) {
            return;
        }
        self.closed_in_a_row = 0;
        if let Some(opening) = &mut self.ramp_up {
            opening.succeeded += 1;
        }
    }

    pub(super) fn refund(&mut self, charged: u64) {
        self.tokens += charged as f64;
    }

    /// The provider wants fewer calls. Of those that were under way together each is told so; only
    /// the first of them makes the pause longer.
    pub(super) fn close(
        &mut self,
        options: &RateLimiterOptions,
        entered_at: Instant,
        asked: Option<Duration>,
        now: Instant,
    ) {
        let old_news = self.entered_before_close(entered_at);
        if old_news && asked.is_none() {
            return;
        }
        let doubled = options.min_pause.saturating_mul(1 << self.closed_in_a_row.min(16));
        let pause = asked.unwrap_or(doubled).min(options.max_pause).min(PAUSE_MAX);
        let until = now + pause;
        if self.closed_until.is_none_or(|closed| closed < until) {
            self.closed_until = Some(until);
        }
        if !old_news {
            self.closed_in_a_row += 1;
            self.closed_at = Some(now);
            self.ramp_up = None;
        }
    }

    fn entered_before_close(&self, entered_at: Instant) -> bool {
        self.closed_at.is_some_and(|closed| entered_at <= closed)
    }
}
