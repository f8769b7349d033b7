//! The lease of the one node of a fleet that sends notifications.

use std::time::Duration;

use brigade_model::refusal::Refusal;
use brigade_runtime::{Runtime, new_key};
use brigade_store::{
    ExpectedVersion, NewRecord, PutRecordResult, RecordKey, RecordKind, RecordVersion,
};
use tokio::time::{Instant, sleep};

const LEASE_KIND: RecordKind = RecordKind::from_static("notification-sender");

/// The time after which another node sends, if this one does not renew its lease.
const LIFETIME: Duration = Duration::from_secs(30);
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// The time before the end of the lease at which the node stops: its clock may be behind.
const MARGIN: Duration = Duration::from_secs(5);
/// The pause between two tries of a node that waits for the lease.
const WAIT_INTERVAL: Duration = Duration::from_secs(5);

/// The right to send. A daemon that has its store alone needs no record for it.
#[derive(Debug)]
pub(super) enum SenderLease {
    Alone,
    Shared { holder: String, version: RecordVersion, until: Instant },
}

impl SenderLease {
    /// Waits until this node may send.
    pub(super) async fn acquire(runtime: &Runtime) -> Self {
        if !runtime.is_in_fleet() {
            return Self::Alone;
        }
        let holder = new_key();
        loop {
            let begun = Instant::now();
            match put(runtime, &holder, ExpectedVersion::Absent).await {
                Ok(PutRecordResult::Stored(version)) => {
                    tracing::info!("this node sends notifications");
                    return Self::Shared { holder, version, until: begun + LIFETIME };
                }
                Ok(PutRecordResult::Conflict(_)) => {}
                Err(problem) => tracing::debug!(%problem, "no lease for notifications"),
            }
            sleep(WAIT_INTERVAL).await;
        }
    }

    /// Renews the lease, and returns when it is lost.
    pub(super) async fn keep(&mut self, runtime: &Runtime) {
        let Self::Shared { holder, version, until } = self else {
            return std::future::pending().await;
        };
        loop {
            let left = until.saturating_duration_since(Instant::now() + MARGIN);
            if left.is_zero() {
                return;
            }
            sleep(left.min(RENEW_INTERVAL)).await;
            let begun = Instant::now();
            let expected = ExpectedVersion::Version(*version);
            let put = tokio::time::timeout_at(*until - MARGIN, put(runtime, holder, expected));
            match put.await {
                Ok(Ok(PutRecordResult::Stored(renewed))) => {
                    *version = renewed;
                    *until = begun + LIFETIME;
                }
                // A put that reported an error has happened.
                Ok(Ok(PutRecordResult::Conflict(Some(found))))
                    if found.value == holder.as_bytes() =>
                {
                    *version = found.version;
                }
                Ok(Ok(PutRecordResult::Conflict(_))) => return,
                Ok(Err(problem)) => tracing::debug!(%problem, "the lease was not renewed"),
                Err(_) => return,
            }
        }
    }

    /// Gives the lease back, so that another node sends at once.
    pub(super) async fn release(self, runtime: &Runtime) {
        let Self::Shared { version, .. } = self else { return };
        let Ok(key) = lease_key() else { return };
        if let Err(problem) = runtime.records().remove(&key, Some(version)).await {
            tracing::debug!(%problem, "the lease for notifications was not given back");
        }
    }
}

fn lease_key() -> Result<RecordKey, Refusal> {
    Ok(RecordKey::new(LEASE_KIND, "sender")?)
}

async fn put(
    runtime: &Runtime,
    holder: &str,
    expected: ExpectedVersion,
) -> Result<PutRecordResult, Refusal> {
    let record = NewRecord::new(lease_key()?, holder)?;
    runtime.records().put_for(LIFETIME, record, expected).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brigade_model::ids::Time;
    use brigade_runtime::{Clock, NodeOptions};
    use brigade_store::{MemoryStore, Store};
    use brigade_testkit::PausedClock;
    use tokio::time::timeout;

    use super::*;

    async fn start_node(name: &str, store: &Arc<dyn Store>, clock: PausedClock) -> Runtime {
        let builder = Runtime::builder().shared_store(store.clone()).clock(Arc::new(clock));
        builder.node(NodeOptions::new(name)).start().await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn one_node_sends_until_its_lease_is_over_or_given_back() {
        let clock = PausedClock::starting_at(Time(1_000_000));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::shared_by_nodes(move || clock.now()));
        let one = start_node("one", &store, clock).await;
        let two = start_node("two", &store, clock).await;
        let mut first = SenderLease::acquire(&one).await;
        let mut second = Box::pin(SenderLease::acquire(&two));
        tokio::select! {
            _ = &mut second => panic!("two nodes send"),
            () = first.keep(&one) => panic!("the lease was lost"),
            () = sleep(LIFETIME * 10) => {}
        }
        // The first node is gone, and renews it no more.
        let taken = timeout(LIFETIME + WAIT_INTERVAL, second).await;
        let second = taken.expect("the second node continues");
        let lost = timeout(RENEW_INTERVAL * 2, first.keep(&one)).await;
        lost.expect("the first node sees that it may not send");
        second.release(&two).await;
        let again = timeout(WAIT_INTERVAL, SenderLease::acquire(&one)).await;
        again.expect("a lease that was given back is free at once");
    }

    #[tokio::test]
    async fn a_daemon_alone_needs_no_record() {
        let runtime = Runtime::builder().start().await.unwrap();
        assert!(matches!(SenderLease::acquire(&runtime).await, SenderLease::Alone));
        assert_eq!(runtime.records().get(&lease_key().unwrap()).await.unwrap(), None);
    }
}
