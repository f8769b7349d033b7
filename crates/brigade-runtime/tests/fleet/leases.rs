//! Names, leases and clocks of nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::ids::Time;
use brigade_model::refusal::RefusalKind;
use brigade_runtime::{Clock, Job, JobContext, JobError, NodeOptions, Runtime, RuntimeBuilder};
use brigade_store::{BoxFuture, MemoryStore};
use brigade_testkit::{ConnectionCondition, PausedClock};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn two_nodes_of_one_name_are_refused() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let refused = Runtime::builder()
        .shared_store(fleet.store.clone())
        .clock(one.runtime.clock())
        .node(NodeOptions::new("one").lease(LEASE))
        .start()
        .await
        .unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    assert!(refused.message.contains("a node of the name \"one\" is running"), "{refused}");
    assert!(one.session("kitchen").await.list().is_empty(), "the first one is not disturbed");
}

#[tokio::test(start_paused = true)]
async fn a_store_of_one_runtime_refuses_nodes_and_bad_names_are_refused() {
    let builder = Runtime::builder().store(MemoryStore::new()).node(NodeOptions::new("one"));
    assert_eq!(builder.start().await.unwrap_err().kind, RefusalKind::Invalid);
    let fleet = TestFleet::new();
    for name in ["", "two words", "a\nb"] {
        let store: Arc<MemoryStore> = fleet.store.clone();
        let builder = Runtime::builder().shared_store(store).node(NodeOptions::new(name));
        assert_eq!(builder.start().await.unwrap_err().kind, RefusalKind::Invalid, "{name:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_lease_answers_unavailable_and_recovers() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let session = one.session("kitchen").await;
    one.connection.set(ConnectionCondition::Hangs);
    tokio::time::sleep(LEASE).await;
    let refused = session.spawn(SLEEP.with(1)).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Unavailable);
    one.connection.set(ConnectionCondition::Works);
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(session.spawn(SLEEP.with(1)).await.unwrap().result().await.unwrap(), 1);
}

/// The node notices the end of its lease while it waits for the database: in a commit, or for a session.
#[tokio::test(start_paused = true)]
async fn requests_to_a_node_that_loses_its_lease_are_answered() {
    let fleet = TestFleet::new();
    // All requests wait behind the first one, in the same loop.
    let one = fleet.node_with("one", |builder| builder.loops(1)).await;
    let session = one.session("kitchen").await;
    let echo = session.spawn(ECHO.with(())).await.unwrap();
    for is_commit in [true, false] {
        one.connection.set(ConnectionCondition::Hangs);
        let first = async {
            match is_commit {
                true => session.spawn(SLEEP.with(1)).await.map(drop),
                false => one.runtime.session("cellar").await.map(drop),
            }
        };
        let later = async {
            tokio::time::sleep(SECOND).await;
            let (spawned, all, opened) = tokio::join!(
                session.spawn(SLEEP.with(1)),
                session.spawn_all([SLEEP.with(1), SLEEP.with(1)]),
                one.runtime.session("attic")
            );
            let results = [spawned.map(drop), all.unwrap().remove(0).map(drop), opened.map(drop)];
            results.map(|result| result.unwrap_err().kind)
        };
        let timeout = tokio::time::sleep(2 * SECOND);
        let waited = session.wait_until(vec![echo.no().into()], WaitMode::All, timeout);
        let answered = async { tokio::join!(first, later, waited) };
        let (first, later, waited) =
            tokio::time::timeout(LEASE, answered).await.expect("no request hangs");
        let expected = if is_commit { RefusalKind::Unknown } else { RefusalKind::Unavailable };
        assert_eq!(first.unwrap_err().kind, expected);
        assert_eq!(later, [RefusalKind::Unavailable; 3]);
        assert!(waited.unwrap().is_none(), "the wait has timed out");
        one.connection.set(ConnectionCondition::Works);
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(session.spawn(SLEEP.with(1)).await.unwrap().result().await.unwrap(), 1);
    }
    echo.send("done").await.unwrap();
    assert_eq!(echo.result().await.unwrap(), "done");
}

/// The clock of a process that can be stopped. Its timers do not run meanwhile.
#[derive(Debug)]
struct StoppableClock {
    inner: PausedClock,
    stopped_secs: AtomicU64,
}

impl Clock for StoppableClock {
    fn now(&self) -> Time {
        self.inner.now()
    }

    fn sleep_until(&self, time: Time) -> BoxFuture<'static, ()> {
        self.inner.sleep_until(time)
    }

    fn running_time(&self) -> Duration {
        self.inner.running_time() + Duration::from_secs(self.stopped_secs.load(Ordering::Relaxed))
    }
}

#[tokio::test(start_paused = true)]
async fn no_effect_begins_after_a_stop_of_the_process_past_its_lease() {
    const TWO_STEPS: Job<(), u64> = Job::new("two steps");
    let fleet = TestFleet::new();
    let clock = Arc::new(StoppableClock { inner: fleet.clock, stopped_secs: AtomicU64::new(0) });
    let effects = Arc::new(AtomicU64::new(0));
    let handler = {
        let clock = clock.clone();
        let effects = effects.clone();
        move |ctx: JobContext, ()| {
            let clock = clock.clone();
            let effects = effects.clone();
            async move {
                ctx.step("first", || async { Ok::<_, JobError>(1) }).await?;
                // The process is stopped and continues here, in its first attempt.
                let stopped = &clock.stopped_secs;
                let _ = stopped.compare_exchange(0, 20, Ordering::Relaxed, Ordering::Relaxed);
                let second =
                    || async { Ok::<_, JobError>(effects.fetch_add(1, Ordering::Relaxed) + 1) };
                ctx.step("second", second).await
            }
        }
    };
    let build = |builder: RuntimeBuilder| builder.clock(clock.clone()).job(TWO_STEPS, handler);
    let one = fleet.node_with("one", build).await;
    let session = one.session("kitchen").await;
    let task = session.spawn(TWO_STEPS.with(())).await.unwrap();
    assert_eq!(task.result().await.unwrap(), 1, "the step has begun once");
    assert_eq!(effects.load(Ordering::Relaxed), 1);
}

/// The last request counts, not the last one that the node has heard of.
#[tokio::test(start_paused = true)]
async fn a_node_that_joins_again_drains_as_it_was_asked() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    for draining in [true, false] {
        two.runtime.drain_node("one", !draining).await.unwrap();
        tokio::time::sleep(5 * SECOND).await;
        one.connection.set(ConnectionCondition::Hangs);
        two.runtime.drain_node("one", draining).await.unwrap();
        tokio::time::sleep(2 * LEASE).await;
        one.connection.set(ConnectionCondition::Works);
        tokio::time::sleep(5 * SECOND).await;
        let nodes = two.runtime.nodes().await.unwrap();
        let row = &nodes.iter().find(|it| it.row.open && it.row.name == "one").unwrap().row;
        assert_eq!(row.draining, draining);
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_report_their_load() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let session = one.session("kitchen").await;
    session.spawn(WORK.with(60)).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    let nodes = two.runtime.nodes().await.unwrap();
    let row = &nodes.iter().find(|node| node.row.name == "one").unwrap().row;
    assert_eq!((row.load.sessions, row.load.running, row.owned_sessions), (1, 1, 1));
    assert!(row.open && !row.draining);
    assert!(nodes.iter().filter(|node| node.is_own).all(|node| node.row.name == "two"));
}
