//! Leaving: in good order, or by being dropped.

use std::sync::Arc;

use brigade_model::outcome::{Failure, Outcome};
use brigade_model::refusal::RefusalKind;
use brigade_model::task::{QueueReason, TaskState};
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{JobContext, JobError, NewTask, Runtime};
use brigade_store::{MemoryStore, Store};
use brigade_testkit::TestRuntime;

use crate::slow_store::SlowStore;
use crate::support::*;

fn counted_forever(census: &Census) -> NewTask {
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
    settle().await;
    assert_eq!(census.living(), 11);
    crash(test).await;
    assert_eq!(census.living(), 0);
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
        while census.living() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_loses_closures_queues_named_jobs_and_the_next_start_goes_on() {
    let store = Arc::new(MemoryStore::new());
    let (steps, census) = (Tally::default(), Census::default());
    let build = |b: brigade_runtime::RuntimeBuilder| {
        let steps = steps.clone();
        b.job("works", RecoveryPolicy::resume(3), move |ctx: JobContext, (): ()| {
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
    settle().await;
    let tree = test.session.id();
    test.runtime.clone().shutdown().await.unwrap();
    assert_eq!(census.living(), 0, "futures are gone when it returns");
    let row = store.task(tree, job.no()).await.unwrap().unwrap();
    let TaskState::Queued(queued) = &row.state else { panic!("{:?}", row.state) };
    assert!(matches!(queued.reason, QueueReason::Backoff { .. }));
    assert_eq!(row.crashes, 0, "leaving in good order is no crash");
    let row = store.task(tree, closure.no()).await.unwrap().unwrap();
    let Outcome::Failed(lost) = &*row.ended().unwrap().outcome else { panic!("{row:?}") };
    assert!(matches!(lost.failure, Failure::Lost { .. }), "{}", lost.failure);
    refused(test.session.spawn(returns(1)).await, UNAVAILABLE, "shut down");
    drop(test);

    steps.add();
    let test = TestRuntime::on_store(store, build).await;
    let ended = eventually(test.session.wait_all([job.no().into()])).await.unwrap();
    assert_eq!(*ended[0].outcome, succeeded("2"), "the first step was not done again");
    let ended = eventually(test.session.wait_all([closure.no().into()])).await.unwrap();
    assert!(!ended[0].collected_before, "its end is told to who comes next");
}

#[tokio::test(start_paused = true)]
async fn what_a_job_said_before_the_shutdown_is_stored_by_it() {
    let store = Arc::new(MemoryStore::new());
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    let mut tasks = Vec::new();
    for n in 0..20 {
        tasks.push(test.session.spawn(returns(n)).await.unwrap().no());
    }
    let tree = test.session.id();
    settle().await;
    test.runtime.clone().shutdown().await.unwrap();
    for (n, no) in tasks.into_iter().enumerate() {
        let row = store.task(tree, no).await.unwrap().unwrap();
        assert_eq!(*row.ended().unwrap().outcome, succeeded(&n.to_string()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_ends_when_the_runtime_does() {
    let test = TestRuntime::new(|b| b).await;
    let mut news = test.session.subscribe(test.runtime.position());
    let mut from_start = test.runtime.subscribe(Default::default());
    test.runtime.clone().shutdown().await.unwrap();
    refused(eventually(news.next()).await, UNAVAILABLE, "shut down");
    eventually(from_start.next()).await.expect("what was published is still told first");
    refused(eventually(from_start.next()).await, UNAVAILABLE, "shut down");

    let test = TestRuntime::new(|b| b).await;
    let mut news = test.session.subscribe(test.runtime.position());
    crash(test).await;
    refused(eventually(news.next()).await, UNAVAILABLE, "shut down");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_can_be_opened_again_as_soon_as_the_runtime_is_shut_down() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("again.db");
    for _ in 0..50 {
        let store = brigade_sqlite::SqliteStore::open(&path, Default::default()).unwrap();
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
async fn a_store_that_is_away_does_not_hold_the_shutdown() {
    let inner = Arc::new(MemoryStore::new());
    let store = SlowStore::new(inner.clone());
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    for name in ["one", "two", "three"] {
        let session = test.runtime.session(name).await.unwrap();
        session.spawn(forever()).await.unwrap();
    }
    settle().await;
    store.set_away(true);
    let left = tokio::time::timeout(10 * SECOND, test.runtime.clone().shutdown()).await;
    refused(left.unwrap(), UNAVAILABLE, "could not all be stored");
    drop(test);
    let test = TestRuntime::on_store(inner, |b| b).await;
    let session = test.runtime.session("two").await.unwrap();
    let ended = eventually(session.wait_all([number(1).into()])).await.unwrap();
    assert_eq!(ended[0].outcome.label(), "failed", "as after a crash");
}

#[tokio::test(start_paused = true)]
async fn who_is_not_answered_before_the_shutdown_hears_that_it_is_unknown() {
    let store = SlowStore::new(Arc::new(MemoryStore::new()));
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    store.set_away(true);
    let (spawned, left) = tokio::join!(eventually(test.session.spawn(forever())), async {
        tokio::time::sleep(60 * SECOND).await;
        tokio::time::timeout(10 * SECOND, test.runtime.clone().shutdown()).await
    });
    refused(spawned, RefusalKind::Unknown, "it may have happened");
    refused(left.unwrap(), UNAVAILABLE, "could not all be stored");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_stores_what_there_is_when_the_store_is_back_in_time() {
    let inner = Arc::new(MemoryStore::new());
    let store = SlowStore::new(inner.clone());
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    let task = test.session.spawn(forever()).await.unwrap();
    settle().await;
    store.set_away(true);
    let (left, ()) = tokio::join!(test.runtime.clone().shutdown(), async {
        tokio::time::sleep(SECOND / 2).await;
        store.set_away(false);
    });
    left.unwrap();
    let row = inner.task(test.session.id(), task.no()).await.unwrap().unwrap();
    assert_eq!(row.state.label(), "failed", "a closure is lost with its process");
}
