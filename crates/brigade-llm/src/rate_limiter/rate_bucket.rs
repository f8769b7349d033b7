//! The level of a rate: requests or tokens that can be used at once.

use std::time::Duration;

use tokio::time::Instant;

const SECONDS_PER_MINUTE: f64 = 60.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct RateBucket {
    /// The amount available at the time of the last refill. Negative after calls that used more than
    /// estimated.
    pub(super) level: f64,
    refilled_at: Instant,
}

impl RateBucket {
    pub(super) fn full(per_minute: u64, now: Instant) -> Self {
        Self { level: per_minute as f64, refilled_at: now }
    }

    /// Adds what has become available since the last refill, at most the amount of a minute.
    pub(super) fn refill(&mut self, per_minute: u64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.refilled_at).as_secs_f64();
        let max = per_minute as f64;
        self.level = (self.level + elapsed * max / SECONDS_PER_MINUTE).min(max);
        self.refilled_at = now;
    }

    /// Returns the time at which an amount is available, or `None` if it is now.
    pub(super) fn available_at(
        &mut self,
        per_minute: u64,
        needed: u64,
        now: Instant,
    ) -> Option<Instant> {
        self.refill(per_minute, now);
        let missing = needed as f64 - self.level;
        // A difference of less than one hundredth comes from the rounding of refills.
        if missing < 0.01 {
            return None;
        }
        let wait = (missing * SECONDS_PER_MINUTE / per_minute as f64).min(3600.0);
        Some(now + Duration::from_secs_f64(wait) + Duration::from_millis(1))
    }

    /// Lowers the rate, and returns the level that goes with the difference.
    pub(super) fn give_up(&mut self, from: u64, to: u64, now: Instant) -> f64 {
        self.refill(from, now);
        let given = match (from, to) {
            // A debt of the last calls, too.
            (_, 0) => self.level,
            _ if to < from => self.level * (from - to) as f64 / from as f64,
            _ => 0.0,
        };
        self.level -= given;
        given
    }
}
