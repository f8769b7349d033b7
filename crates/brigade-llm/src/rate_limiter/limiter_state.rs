//! The counts of a rate limiter, and the time at which the next call may start.

use std::time::Duration;

use tokio::time::Instant;

use super::RateLimiterOptions;

const SECONDS_PER_MINUTE: f64 = 60.0;
/// The longest pause, whatever the options say: `Instant` cannot represent much later times.
const PAUSE_MAX: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug)]
pub(super) struct LimiterState {
    pub(super) running: usize,
    pub(super) waiting: usize,
    /// The tokens available now. Negative after calls that used more than estimated.
    tokens: f64,
    refilled_at: Instant,
    pub(super) closed_until: Option<Instant>,
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
    Admitted { entered_at: Instant, charged: u64 },
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

    /// Admits the first waiting call, or returns the time of the next attempt.
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
        let charged = options.tokens_per_minute.map_or(0, |max| estimate.min(max));
        if let Some(time) = self.tokens_available_at(options, charged, now) {
            return AdmitResult::NotBefore(time);
        }
        self.tokens -= charged as f64;
        self.running += 1;
        if let Some(ramp_up) = &mut self.ramp_up {
            ramp_up.entered += 1;
        }
        AdmitResult::Admitted { entered_at: now, charged }
    }

    /// Returns the time at which a gradually opening limiter admits the next call. It is fully open
    /// once as many calls have succeeded as may run.
    fn ramp_up_at(&mut self, options: &RateLimiterOptions, now: Instant) -> Option<Instant> {
        let ramp_up = self.ramp_up.as_ref()?;
        let steps = ramp_up.steps(options.ramp_up_interval, now);
        if ramp_up.succeeded.saturating_add(steps) >= options.max_running {
            self.ramp_up = None;
            return None;
        }
        if ramp_up.entered < ramp_up.allowance(options.ramp_up_interval, now) {
            return None;
        }
        let step = options.ramp_up_interval.max(Duration::from_millis(1));
        let next = u32::try_from(steps + 1).unwrap_or(u32::MAX);
        ramp_up.started_at.checked_add(step.saturating_mul(next)).or(Some(now + PAUSE_MAX))
    }

    /// Returns the time at which enough tokens are available, or `None` if they are now.
    fn tokens_available_at(
        &mut self,
        options: &RateLimiterOptions,
        needed: u64,
        now: Instant,
    ) -> Option<Instant> {
        let max = options.tokens_per_minute? as f64;
        let elapsed = now.saturating_duration_since(self.refilled_at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * max / SECONDS_PER_MINUTE).min(max);
        self.refilled_at = now;
        let missing = needed as f64 - self.tokens;
        // A difference of less than one token comes from the rounding of refills.
        if missing < 1.0 {
            return None;
        }
        let wait = (missing * SECONDS_PER_MINUTE / max).min(3600.0);
        Some(now + Duration::from_secs_f64(wait) + Duration::from_millis(1))
    }

    pub(super) fn record_success(&mut self, entered_at: Instant, charged: u64, used: u64) {
        self.tokens += charged as f64 - used as f64;
        if self.entered_before_close(entered_at) {
            return;
        }
        self.closed_in_a_row = 0;
        if let Some(ramp_up) = &mut self.ramp_up {
            ramp_up.succeeded += 1;
        }
    }

    pub(super) fn refund(&mut self, charged: u64) {
        self.tokens += charged as f64;
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
        if !is_outdated {
            self.closed_in_a_row += 1;
            self.closed_at = Some(now);
            self.ramp_up = None;
        }
    }

    fn entered_before_close(&self, entered_at: Instant) -> bool {
        self.closed_at.is_some_and(|closed| entered_at <= closed)
    }
}
