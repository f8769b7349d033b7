//! Clocks without waiting.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::ids::{Millis, Time};
use brigade_runtime::Clock;
use brigade_store::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

/// Stands still until it is moved.
#[derive(Clone, Debug)]
pub struct ManualClock {
    now: Arc<watch::Sender<Time>>,
}

impl ManualClock {
    pub fn at(now: Time) -> Self {
        Self { now: Arc::new(watch::channel(now).0) }
    }

    pub fn advance(&self, span: Duration) {
        self.now.send_modify(|now| *now = now.after(span.into()));
    }

    /// Sets it, also backwards, as a machine's clock may be.
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
}

/// Follows tokio's clock, so that under paused time a test runs through hours at once, each timer
/// in its order.
#[derive(Clone, Copy, Debug)]
pub struct PausedClock {
    base: Time,
    start: Instant,
}

impl PausedClock {
    /// To be made inside the tokio runtime that it follows.
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
}
