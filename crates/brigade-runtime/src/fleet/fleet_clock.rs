//! The clock of a node, corrected to the clock of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use brigade_model::ids::{Millis, Time};
use brigade_store::BoxFuture;

use crate::clock::Clock;

/// The longest time between two looks at the correction during a sleep.
const CORRECTION_INTERVAL: Millis = Millis(5_000);

/// A clock that differs from the machine's by a correction. Sessions move between nodes, and their
/// timers must mean the same everywhere.
#[derive(Clone, Debug)]
pub(crate) struct FleetClock {
    machine: Arc<dyn Clock>,
    /// The clock of the store minus that of the machine, in milliseconds.
    correction: Arc<AtomicI64>,
}

impl FleetClock {
    pub(crate) fn new(machine: Arc<dyn Clock>) -> Self {
        Self { machine, correction: Arc::default() }
    }

    /// Returns the time of the machine, without the correction.
    pub(crate) fn machine_now(&self) -> Time {
        self.machine.now()
    }

    /// Sets the correction from a reply of the store. `before` is the machine's time when the request
    /// was sent: half of the time since is taken for the way back.
    pub(crate) fn correct(&self, store: Time, before: Time) {
        let after = self.machine.now();
        let middle = before.0 + after.since(before).0 / 2;
        let correction =
            i64::try_from(store.0).unwrap_or(i64::MAX) - i64::try_from(middle).unwrap_or(i64::MAX);
        self.correction.store(correction, Ordering::Relaxed);
    }

    /// Returns the machine's clock minus the store's, in milliseconds.
    pub(crate) fn skew_ms(&self) -> i64 {
        -self.correction.load(Ordering::Relaxed)
    }
}

impl Clock for FleetClock {
    fn now(&self) -> Time {
        Time(self.machine.now().0.saturating_add_signed(self.correction.load(Ordering::Relaxed)))
    }

    fn sleep_until(&self, time: Time) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            while clock.now() < time {
                let pause = time.since(clock.now()).min(CORRECTION_INTERVAL);
                clock.machine.sleep_until(clock.machine.now().after(pause)).await;
            }
        })
    }

    fn running_time(&self) -> Duration {
        self.machine.running_time()
    }
}
