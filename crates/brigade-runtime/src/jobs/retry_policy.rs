//! The retries of a step, or of a job as a whole.

use std::time::Duration;

use brigade_model::refusal::Refusal;

/// The largest number of attempts. Each failed one is an entry of the journal.
const ATTEMPTS_MAX: u32 = 1_000;
const DEFAULT_ATTEMPTS: u32 = 5;
const DEFAULT_PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// The number of attempts and the pauses between them.
///
/// ```
/// use brigade_runtime::RetryPolicy;
/// use std::time::Duration;
///
/// // Pauses of 1, 2, 4, 8, 10, 10 and 10 seconds.
/// let policy = RetryPolicy::exponential(Duration::from_secs(1))
///     .max_pause(Duration::from_secs(10))
///     .max_attempts(8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    first_pause: Duration,
    factor: u32,
    max_pause: Duration,
    max_attempts: u32,
}

impl RetryPolicy {
    /// Doubles the pause after each failed attempt, up to five minutes. Makes five attempts.
    pub const fn exponential(first_pause: Duration) -> Self {
        Self {
            first_pause,
            factor: 2,
            max_pause: DEFAULT_PAUSE_MAX,
            max_attempts: DEFAULT_ATTEMPTS,
        }
    }

    /// Makes the same pause after each failed attempt. Makes five attempts.
    pub const fn fixed(pause: Duration) -> Self {
        Self { first_pause: pause, factor: 1, max_pause: pause, max_attempts: DEFAULT_ATTEMPTS }
    }

    /// Sets the number of attempts, the first included: 1 to 1,000.
    #[must_use]
    pub const fn max_attempts(self, most: u32) -> Self {
        Self { max_attempts: most, ..self }
    }

    /// Sets the longest pause.
    #[must_use]
    pub const fn max_pause(self, most: Duration) -> Self {
        Self { max_pause: most, ..self }
    }

    /// Refuses a policy that never attempts anything, and one without an end.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match self.max_attempts {
            0 => Err(Refusal::invalid("a retry policy of no attempts does nothing; allow one")),
            1..=ATTEMPTS_MAX => Ok(()),
            more => Err(Refusal::invalid(format!(
                "a retry policy makes at most {ATTEMPTS_MAX} attempts, not {more}; resume the task \
                 to try for longer"
            ))),
        }
    }

    /// Returns the pause after an attempt that failed, counted from 1. Returns `None` after the
    /// last.
    pub(crate) fn pause_after(&self, attempt: u32) -> Option<Duration> {
        if attempt >= self.max_attempts {
            return None;
        }
        let factor = self.factor.saturating_pow(attempt.saturating_sub(1));
        Some(self.first_pause.saturating_mul(factor).min(self.max_pause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_maximum_and_end_with_the_attempts() {
        let second = Duration::from_secs(1);
        let policy = RetryPolicy::exponential(second).max_pause(5 * second).max_attempts(5);
        let pauses: Vec<_> = (1..=5).map(|attempt| policy.pause_after(attempt)).collect();
        assert_eq!(
            pauses,
            [Some(second), Some(2 * second), Some(4 * second), Some(5 * second), None]
        );
        assert_eq!(RetryPolicy::fixed(second).pause_after(4), Some(second));
        let longest = RetryPolicy::exponential(Duration::MAX).max_attempts(1_000);
        assert_eq!(longest.pause_after(999), Some(DEFAULT_PAUSE_MAX));
    }

    #[test]
    fn a_policy_of_nothing_or_for_ever_is_refused() {
        let policy = RetryPolicy::fixed(Duration::ZERO);
        assert!(policy.max_attempts(0).check().is_err());
        assert!(policy.max_attempts(u32::MAX).check().is_err());
        assert!(policy.max_attempts(1).check().is_ok());
    }
}
