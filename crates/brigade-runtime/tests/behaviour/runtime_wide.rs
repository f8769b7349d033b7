//! Settings and operations of the whole runtime: session limits, retention, drain.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::ids::Millis;
use brigade_model::limits::Limits;
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{JobContext, JobError, NewTask, Runtime};
use brigade_store::{MemoryStore, Retention, Store};
use brigade_testkit::{ManualClock, TestRuntime, with_test_loops};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::faulty_store::FaultyStore;
use crate::support::*;

const HOUR: Duration = Duration::from_secs(60 * 60);

fn at_once(running: u32) -> Limits {
    Limits { running: Some(running), ..Limits::default() }
}

#[tokio::test]
async fn a_session_without_limits_of_its_own_gets_those_of_the_runtime() {
    let runtime = Runtime::builder().session_limits(at_once(3)).start().await.unwrap();
    let limits = async |name: &str| runtime.session(name).await.unwrap().row().limits;
    assert_eq!(limits("plain").await, at_once(3));
    let client = runtime.session_as("client", "someone").await.unwrap();
    assert_eq!(client.row().limits, at_once(3));
    let own = runtime.session_with("own", at_once(1)).await.unwrap();
    assert_eq!(own.row().limits, at_once(1));
    let none = runtime.session_with("none", Limits::default()).await.unwrap();
    assert_eq!(none.row().limits, Limits::default(), "no limits are limits of its own");
}

#[tokio::test]
async fn an_opened_session_says_whether_the_requested_limits_apply() {
    let builder = with_test_loops(Runtime::builder(), &MemoryStore::new()).await;
    let runtime = builder.start().await.unwrap();
    let first = runtime.open_session("kitchen").limits(at_once(1)).await.unwrap();
    assert!(first.opened && first.limits_applied);
    let same = runtime.open_session("kitchen").limits(at_once(1)).await.unwrap();
    assert!(!same.opened && same.limits_applied);
    let other = runtime.open_session("kitchen").limits(at_once(2)).await.unwrap();
    assert!(!other.opened && !other.limits_applied);
    assert_eq!(other.session.row().limits, at_once(1));
    let plain = runtime.open_session("kitchen").await.unwrap();
    assert!(!plain.opened && plain.limits_applied);
    runtime.session_with("kitchen", at_once(1)).await.unwrap();
    let refusal = runtime.session_with("kitchen", at_once(2)).await;
    refused(refusal, CONFLICT, "the session kitchen is open with other limits");
    refused(runtime.open_session("").await, INVALID, "name");
}

#[tokio::test]
async fn a_runtime_prunes_at_its_start_and_after_each_interval() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let clock = ManualClock::at(TestRuntime::START);
    let retention = Retention { ended: Millis::from(HOUR), events: Millis::from(HOUR) };
    let runtime = Runtime::builder()
        .shared_store(store.clone())
        .clock(Arc::new(clock.clone()))
        .retention(retention)
        .start()
        .await
        .unwrap();
    soon(store.wait_prunes(1)).await;
    let session = runtime.session("test").await.unwrap();
    let task = session.spawn(returns(1)).await.unwrap();
    soon(task.wait()).await.unwrap();
    clock.advance(HOUR);
    soon(store.wait_prunes(2)).await;
    clock.advance(HOUR);
    soon(store.wait_prunes(3)).await;
    let stored = store.task(session.id(), task.no()).await.unwrap();
    assert!(stored.is_none(), "the ended task is older than its retention");
    runtime.shutdown().await.unwrap();
    assert_eq!(store.prunes(), 3, "nothing was pruned in between");
}

#[tokio::test]
async fn a_failed_prune_is_repeated_before_the_interval_is_over() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    store.set_full(true);
    let clock = ManualClock::at(TestRuntime::START);
    let retention = Retention { ended: Millis(0), events: Millis(0) };
    let runtime = Runtime::builder()
        .shared_store(store.clone())
        .clock(Arc::new(clock.clone()))
        .retention_every(retention, HOUR)
        .start()
        .await
        .unwrap();
    soon(store.wait_prunes(1)).await;
    clock.advance(Duration::from_secs(10));
    soon(store.wait_prunes(2)).await;
    store.set_full(false);
    clock.advance(Duration::from_secs(20));
    soon(store.wait_prunes(3)).await;
    clock.advance(HOUR);
    soon(store.wait_prunes(4)).await;
    runtime.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_what_runs_and_starts_only_children() {
    let gate = CancellationToken::new();
    let child_gate = CancellationToken::new();
    let test = TestRuntime::new(|b| b).await;
    let parent = {
        let gate = gate.clone();
        let child = behind(&child_gate);
        NewTask::closure("parent", move |ctx: JobContext| async move {
            gate.cancelled().await;
            let child = ctx.spawn(child).await?;
            ctx.wait_all([&child]).await?;
            Ok::<_, JobError>("done")
        })
    };
    let parent = test.session.spawn(parent.key("one")).await.unwrap();
    until_idle().await;
    let drain = TaskTracker::new().spawn({
        let runtime = test.runtime.clone();
        async move { runtime.drain(HOUR).await }
    });
    until_idle().await;
    let late = test.session.spawn(returns(1)).await;
    refused(late, UNAVAILABLE, "the runtime drains and starts nothing new");
    let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
    refused(operator.spawn(returns(1)).await, UNAVAILABLE, "drains");
    gate.cancel();
    until_idle().await;
    assert!(!drain.is_finished(), "a child runs");
    child_gate.cancel();
    let drained = eventually(drain).await.unwrap().unwrap();
    assert!(drained.is_drained());
    assert!(drained.alive.is_empty(), "{drained:?}");
    assert_eq!(*outcome(&parent).await, succeeded("\"done\""));
    test.runtime.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_finds_a_task_again_by_its_key_and_reads_and_stops_as_before() {
    let test = TestRuntime::new(|b| b).await;
    let task = test.session.spawn(forever().key("one")).await.unwrap();
    let drained = test.runtime.drain(Duration::ZERO).await.unwrap();
    assert!(!drained.is_drained());
    let again = test.session.spawn(forever().key("one")).await.unwrap();
    assert_eq!(again.no(), task.no());
    task.stop(None).await.unwrap();
    let drained = eventually(test.runtime.drain(HOUR)).await.unwrap();
    assert!(drained.alive.is_empty(), "{drained:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_at_its_time_and_names_what_is_alive() {
    let store = Arc::new(MemoryStore::new());
    let build = |b: brigade_runtime::RuntimeBuilder| {
        b.job_named(
            "naps",
            RecoveryPolicy::resume_max_crashes(3),
            |ctx: JobContext, (): ()| async move {
                ctx.sleep(2 * HOUR).await?;
                Ok::<_, JobError>("rested")
            },
        )
    };
    let test = TestRuntime::on_store(store.clone(), build).await;
    let suspended = test.session.spawn(NewTask::job("naps", ())).await.unwrap();
    until(&test.session, suspended.no(), "waiting").await;
    let before = tokio::time::Instant::now();
    let drained = test.runtime.drain(HOUR).await.unwrap();
    assert!(drained.is_drained(), "a suspended task does not hold up a drain");
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert_eq!(drained.alive.len(), 1);
    assert_eq!(drained.alive[0].address, "job:1");
    assert_eq!(drained.alive[0].state.label(), "waiting");
    test.runtime.shutdown().await.unwrap();
    drop(test.session);

    let test = TestRuntime::on_store(store, build).await;
    let blocks = test.session.spawn(forever()).await.unwrap();
    let before = tokio::time::Instant::now();
    let drained = test.runtime.drain(HOUR).await.unwrap();
    assert_eq!(before.elapsed(), HOUR);
    assert!(!drained.is_drained());
    let running: Vec<&str> = drained.running().map(|alive| alive.address.as_str()).collect();
    assert_eq!(running, [format!("job:{}", blocks.no())]);
    test.runtime.clone().shutdown().await.unwrap();
    refused(test.runtime.drain(HOUR).await, UNAVAILABLE, "shut down");
}
