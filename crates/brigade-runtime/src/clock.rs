//! The only source of time.

use std::fmt::Debug;
use std::time::{Duration, UNIX_EPOCH};

use brigade_model::ids::{Millis, Time};
use brigade_store::BoxFuture;

pub trait Clock: Debug + Send + Sync + 'static {
    fn now(&self) -> Time;

    /// Returns when it is `time` or later.
    fn sleep_until(&self, time: Time) -> BoxFuture<'static, ()>;

    /// Returns the time for which the machine has been running, also while it was suspended. Changes of
    /// the time of day do not affect it.
    fn running_time(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        #[expect(clippy::disallowed_methods, reason = "this is the seam that the rule protects")]
        let now = std::time::SystemTime::now();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn sleep_until(&self, time: Time) -> BoxFuture<'static, ()> {
        // The wall clock may be set during a sleep, so read it again at least once a minute.
        let pause = time.since(self.now()).min(Millis(60_000));
        let clock = *self;
        Box::pin(async move {
            tokio::time::sleep(pause.into()).await;
            while clock.now() < time {
                let pause = time.since(clock.now()).min(Millis(60_000));
                tokio::time::sleep(pause.into()).await;
            }
        })
    }
}
