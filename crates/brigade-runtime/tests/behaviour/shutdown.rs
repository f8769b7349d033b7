//! Shutdown of the runtime: in good order, or by being dropped.

use std::sync::Arc;

use brigade_model::outcome::{Failure, Outcome};
use brigade_model::refusal::RefusalKind;
use brigade_model::task::{QueueReason, TaskState};
use brigade_runtime::{Job, JobContext, JobError, JobTask, NewTask, Runtime};
use brigade_store::{MemoryStore, Store};
use brigade_testkit::{SlowStore, TestRuntime};

use crate::support::*;

fn counted_forever(census: &Census) -> NewTask<JobTask<()>> {
    let census = census.clone();
    NewTask::closure("forever", move |_| async move {
        let _counted = census.enter();
        std::future::pending::<()>().await;
        Ok::<_, JobError>(())
    })
}

#[tokio::test(start_paused = true)]
async fn a_dropped_runtime_leaves_no_running_future() {
    let test = TestRuntime::new(|b| b).await;
    let census = Census::default();
    for _ in 0..10 {
        test.session.spawn(counted_forever(&census)).await.unwrap();
    }
    let counted = census.clone();
    let rests = NewTask::closure("rests", move |ctx: JobContext| async move {
        let _counted = counted.enter();
        ctx.receive().await?;
        Ok::<_, JobError>(())
    });
    test.session.spawn(rests).await.unwrap();
    until_idle().await;
    assert_eq!(census.alive(), 11);
    crash(test).await;
    assert_eq!(census.alive(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_runtime_leaves_no_running_future_on_any_thread() {
    let census = Census::default();
    let runtime = Runtime::builder().start().await.unwrap();
    let session = runtime.session("test").await.unwrap();
    let tasks = (0..200).map(|_| counted_forever(&census));
    session.spawn_all(tasks).await.unwrap();
    drop((session, runtime));
    soon(async {
        while census.alive() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_loses_closures_and_queues_named_jobs_for_the_next_start() {
    let store = Arc::new(MemoryStore::new());
    let steps = Tally::default();
    let census = Census::default();
    let build = |b: brigade_runtime::RuntimeBuilder| {
        let steps = steps.clone();
        b.job(Job::new("works"), move |ctx: JobContext, (): ()| {
            let steps = steps.clone();
            async move {
                ctx.step("one", || async { Ok::<_, JobError>(steps.add()) }).await?;
                if steps.get() == 1 {
                    std::future::pending::<()>().await;
                }
                let n = ctx.step("two", || async { Ok::<_, JobError>(steps.add()) }).await?;
                Ok::<_, JobError>(n)
            }
        })
    };
    let test = TestRuntime::on_store(store.clone(), build).await;
    let job = test.session.spawn(NewTask::job("works", ())).await.unwrap();
    let closure = test.session.spawn(counted_forever(&census)).await.unwrap();
    until_idle().await;
    let session_id = test.session.id();
    test.runtime.clone().shutdown().await.unwrap();
    assert_eq!(census.alive(), 0, "no future is alive when it returns");
    let row = store.task(session_id, job.no()).await.unwrap().unwrap();
    let TaskState::Queued(queued) = &row.state else { panic!("{:?}", row.state) };
    assert!(matches!(queued.reason, QueueReason::Backoff { .. }));
    assert_eq!(row.crashes, 0, "a shutdown is no crash");
    let row = store.task(session_id, closure.no()).await.unwrap().unwrap();
    let Outcome::Failed(lost) = &*row.ended().unwrap().outcome else { panic!("{row:?}") };
    assert!(matches!(lost.failure, Failure::Lost { .. }), "{}", lost.failure);
    refused(test.session.spawn(returns(1)).await, UNAVAILABLE, "shut down");
    drop(test);

    steps.add();
    let test = TestRuntime::on_store(store, build).await;
    let ended = eventually(test.session.wait_all([job.no()])).await.unwrap();
    assert_eq!(*ended[0].outcome, succeeded("2"), "the first step was not done again");
    let ended = eventually(test.session.wait_all([closure.no()])).await.unwrap();
    assert!(!ended[0].collected_before, "its outcome is delivered to the next waiter");
}

#[tokio::test(start_paused = true)]
async fn reports_before_a_shutdown_are_stored() {
    let store = Arc::new(MemoryStore::new());
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    let mut tasks = Vec::new();
    for n in 0..20 {
        tasks.push(test.session.spawn(returns(n)).await.unwrap().no());
    }
    let session_id = test.session.id();
    until_idle().await;
    test.runtime.clone().shutdown().await.unwrap();
    for (n, no) in tasks.into_iter().enumerate() {
        let row = store.task(session_id, no).await.unwrap().unwrap();
        assert_eq!(*row.ended().unwrap().outcome, succeeded(&n.to_string()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_ends_when_the_runtime_does() {
    let test = TestRuntime::new(|b| b).await;
    let mut feed = test.session.subscribe(test.runtime.cursor());
    let mut from_start = test.runtime.subscribe(Default::default());
    test.runtime.clone().shutdown().await.unwrap();
    assert!(eventually(feed.next()).await.is_none());
    eventually(from_start.next()).await.expect("published events are read first").unwrap();
    assert!(eventually(from_start.next()).await.is_none());
    assert!(eventually(from_start.next()).await.is_none(), "it stays at its end");

    let test = TestRuntime::new(|b| b).await;
    let mut feed = test.session.subscribe(test.runtime.cursor());
    crash(test).await;
    assert!(eventually(feed.next()).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_can_be_opened_again_as_soon_as_the_runtime_is_shut_down() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("again.db");
    for _ in 0..50 {
        let store = brigade_sqlite::SqliteStore::open(&path).unwrap();
        let runtime = brigade_runtime::Runtime::builder().store(store).start().await.unwrap();
        let session = runtime.session("again").await.unwrap();
        let task = brigade_runtime::NewTask::closure("rests", |ctx| async move {
            ctx.receive().await.map(|_| ()).map_err(brigade_runtime::JobError::from)
        });
        session.spawn(task).await.unwrap();
        drop(session);
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_store_does_not_block_the_shutdown() {
    let inner = Arc::new(MemoryStore::new());
    let store = SlowStore::new(inner.clone());
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    for name in ["one", "two", "three"] {
        let session = test.runtime.session(name).await.unwrap();
        session.spawn(forever()).await.unwrap();
    }
    until_idle().await;
    store.set_away(true);
    let shut_down = tokio::time::timeout(10 * SECOND, test.runtime.clone().shutdown()).await;
    refused(shut_down.unwrap(), UNAVAILABLE, "could not be stored completely");
    drop(test);
    let test = TestRuntime::on_store(inner, |b| b).await;
    let session = test.runtime.session("two").await.unwrap();
    let ended = eventually(session.wait_all([number(1)])).await.unwrap();
    assert_eq!(ended[0].outcome.label(), "failed", "as after a crash");
}

#[tokio::test(start_paused = true)]
async fn a_command_without_a_reply_at_the_shutdown_has_an_unknown_result() {
    let store = SlowStore::new(Arc::new(MemoryStore::new()));
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    store.set_away(true);
    let (spawned, shut_down) = tokio::join!(eventually(test.session.spawn(forever())), async {
        tokio::time::sleep(60 * SECOND).await;
        tokio::time::timeout(10 * SECOND, test.runtime.clone().shutdown()).await
    });
    refused(spawned, RefusalKind::Unknown, "it may have happened");
    refused(shut_down.unwrap(), UNAVAILABLE, "could not be stored completely");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_is_stored_if_the_store_is_back_in_time() {
    let inner = Arc::new(MemoryStore::new());
    let store = SlowStore::new(inner.clone());
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    let task = test.session.spawn(forever()).await.unwrap();
    until_idle().await;
    store.set_away(true);
    let (shut_down, ()) = tokio::join!(test.runtime.clone().shutdown(), async {
        tokio::time::sleep(SECOND / 2).await;
        store.set_away(false);
    });
    shut_down.unwrap();
    let row = inner.task(test.session.id(), task.no()).await.unwrap().unwrap();
    assert_eq!(row.state.label(), "failed", "a closure is lost with its process");
}
