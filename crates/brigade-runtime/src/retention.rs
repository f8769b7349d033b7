//! Retention: the runtime prunes its store by itself.

use std::sync::{Arc, Weak};
use std::time::Duration;

use brigade_model::ids::Millis;
use brigade_model::refusal::Refusal;
use brigade_store::{PruneResult, Retention};
use tokio::sync::Mutex;

use crate::clock::Clock;
use crate::runtime::{Runtime, RuntimeInner};

/// The time between two prunes, unless the program sets another.
pub(crate) const PRUNE_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The first pause after a failed prune. It doubles with each further failure, up to the interval.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// The retention of a runtime and the interval of its prunes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PruneSchedule {
    pub(crate) retention: Retention,
    pub(crate) interval: Duration,
}

impl PruneSchedule {
    /// Starts the prunes of a runtime: at once, then after each interval. They end with the
    /// runtime.
    pub(crate) fn start(self, runtime: &Runtime) {
        let clock = runtime.inner.clock.clone();
        let weak = Arc::downgrade(&runtime.inner);
        let ended = runtime.inner.shutdown_token.clone();
        let abandoned = runtime.inner.abandoned.clone();
        let prune_lock = runtime.inner.prune_lock.clone();
        #[expect(clippy::disallowed_methods, reason = "ends with the runtime")]
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                () = abandoned.cancelled() => {}
                () = self.run(weak, clock, prune_lock) => {}
            }
        });
    }

    async fn run(
        self,
        runtime: Weak<RuntimeInner>,
        clock: Arc<dyn Clock>,
        prune_lock: Arc<Mutex<()>>,
    ) {
        let mut failures = 0;
        loop {
            let in_progress = prune_lock.lock().await;
            // The handle is held only during the prune, so that dropping the others ends the loop.
            let Some(inner) = runtime.upgrade() else { return };
            let started_at = clock.now();
            let pruned = Runtime { inner }.prune(&self.retention).await;
            drop(in_progress);
            failures = log_prune(pruned, failures);
            clock.sleep_until(started_at.after(self.pause_after(failures))).await;
        }
    }

    fn pause_after(&self, failures: u32) -> Millis {
        let pause = match failures {
            0 => self.interval,
            failures => RETRY_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(self.interval),
        };
        pause.into()
    }
}

/// Logs the result of a prune and returns the number of failures in a row.
fn log_prune(pruned: Result<PruneResult, Refusal>, failures: u32) -> u32 {
    match pruned {
        Ok(pruned) => {
            let PruneResult { sessions, tasks, events } = pruned;
            tracing::debug!(sessions, tasks, events, "pruned the store");
            0
        }
        Err(refusal) => {
            tracing::warn!(%refusal, "the store could not be pruned; the runtime tries again");
            failures.saturating_add(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_prune_is_repeated_sooner_and_then_ever_later() {
        let retention = Retention { ended: Millis(1), events: Millis(1) };
        let schedule = PruneSchedule { retention, interval: Duration::from_secs(30) };
        let pauses: Vec<u64> = (0..5).map(|n| schedule.pause_after(n).0 / 1_000).collect();
        assert_eq!(pauses, [30, 10, 20, 30, 30]);
        assert_eq!(schedule.pause_after(u32::MAX).0, 30_000);
    }
}
