//! The pauses between attempts to deliver a notification.

use std::time::Duration;

use brigade_model::ids::{Millis, Time};

/// The number of doublings after which every sensible pause has reached its maximum.
const DOUBLINGS_MAX: u32 = 30;

/// Exponential backoff with jitter, up to an age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The longest pause after the first failed attempt.
    pub first_pause: Duration,
    /// The longest pause after any attempt.
    pub max_pause: Duration,
    /// The age of a notification at which it becomes a dead letter.
    pub give_up_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first_pause: Duration::from_secs(1),
            max_pause: Duration::from_secs(10 * 60),
            give_up_after: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl RetryPolicy {
    /// Returns the pause after this number of failed attempts: the second half of it is random.
    pub(super) fn pause_after(&self, attempts: u32, random: u64) -> Duration {
        let doublings = attempts.saturating_sub(1).min(DOUBLINGS_MAX);
        let longest = self.first_pause.saturating_mul(1 << doublings).min(self.max_pause);
        let millis = Millis::from(longest).0;
        let half = millis / 2;
        Duration::from_millis(millis - half + random % (half + 1))
    }

    /// Returns the time of the next attempt, or `None` if the notification is too old for one.
    pub(super) fn next_attempt(
        &self,
        created_at: Time,
        now: Time,
        pause: Duration,
    ) -> Option<Time> {
        let next = now.after(pause.into());
        (next < created_at.after(self.give_up_after.into())).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum_and_their_second_half_is_random() {
        let policy = RetryPolicy::default();
        let range = |attempts| {
            let shortest = policy.pause_after(attempts, 0).as_millis();
            let halves = policy.pause_after(attempts, u64::MAX).as_millis();
            assert!(shortest <= halves, "{attempts}");
            shortest
        };
        assert_eq!(
            [1, 2, 3, 10, 11, 4_000_000].map(range),
            [500, 1000, 2000, 256_000, 300_000, 300_000]
        );
        for random in 0..2000 {
            let pause = policy.pause_after(1, random).as_millis();
            assert!((500..=1000).contains(&pause), "{pause}");
        }
        assert_eq!(policy.pause_after(1, 500).as_millis(), 1000);
        let none = RetryPolicy { first_pause: Duration::ZERO, ..policy };
        assert_eq!(none.pause_after(7, 3), Duration::ZERO);
    }

    #[test]
    fn a_notification_gets_too_old() {
        let policy =
            RetryPolicy { give_up_after: Duration::from_secs(10), ..RetryPolicy::default() };
        let second = Duration::from_secs(1);
        assert_eq!(policy.next_attempt(Time(5_000), Time(6_000), second), Some(Time(7_000)));
        assert_eq!(policy.next_attempt(Time(5_000), Time(14_000), second), None);
    }
}
