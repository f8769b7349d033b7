//! Clocks for tests, which need not wait.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use brigade_model::ids::{Millis, Time};
use brigade_runtime::Clock;
use brigade_store::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

/// A clock that stands still until a test advances or sets it.
#[derive(Clone, Debug)]
pub struct ManualClock {
    now: Arc<watch::Sender<Time>>,
}

impl ManualClock {
    pub fn at(now: Time) -> Self {
        Self { now: Arc::new(watch::channel(now).0) }
    }

    pub fn advance(&self, duration: Duration) {
        self.now.send_modify(|now| *now = now.after(duration.into()));
    }

    /// Sets the time, also backwards, as the clock of a machine may be set.
    pub fn set(&self, now: Time) {
        self.now.send_replace(now);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        *self.now.borrow()
    }

    fn sleep_until(&self, time: Time) -> BoxFuture<'static, ()> {
        let mut now = self.now.subscribe();
        Box::pin(async move {
            if now.wait_for(|now| *now >= time).await.is_err() {
                std::future::pending().await
            }
        })
    }

    fn running_time(&self) -> Duration {
        self.now().since(Time(0)).into()
    }
}

/// A clock that follows tokio's. Under paused time, a test passes hours at once, and timers fire in
/// order.
#[derive(Clone, Copy, Debug)]
pub struct PausedClock {
    base: Time,
    start: Instant,
}

impl PausedClock {
    /// Creates the clock. Call it inside the tokio runtime whose time it follows.
    pub fn starting_at(base: Time) -> Self {
        Self { base, start: Instant::now() }
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Time {
        self.base.after(Millis(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)))
    }

    fn sleep_until(&self, time: Time) -> BoxFuture<'static, ()> {
        let at = self.start + Duration::from(time.since(self.base));
        Box::pin(tokio::time::sleep_until(at))
    }

    fn running_time(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Stops paused time as long as the value lives, for a test that waits for real input and output. Paused
/// time would pass meanwhile, because all tasks are idle.
#[derive(Debug)]
pub struct StoppedTime {
    _release: mpsc::Sender<()>,
}

impl StoppedTime {
    /// Stops the time of the current tokio runtime.
    pub fn begin() -> Self {
        let (release, released) = mpsc::channel();
        // Paused time does not pass while blocking work runs.
        tokio::task::spawn_blocking(move || released.recv());
        Self { _release: release }
    }
}
