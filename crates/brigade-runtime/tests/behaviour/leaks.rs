//! Tasks that have ended and were collected leave nothing in memory.

use std::sync::Arc;

use brigade_model::call::WaitMode;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::Millis;
use brigade_model::limits::Limits;
use brigade_runtime::{JobContext, JobError, NewTask, Runtime};
use brigade_store::{EventQuery, MemoryOptions, MemoryStore, Retention, Store};
use brigade_testkit::TestRuntime;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_finished_and_collected_tasks_leave_nothing_behind() {
    let options =
        MemoryOptions { max_events: 1_000, max_finished_tasks: 100, max_processed_messages: 100 };
    let store = Arc::new(MemoryStore::with_options(options));
    let runtime = Runtime::builder().shared_store(store.clone()).start().await.unwrap();
    let session = runtime.session("test").await.unwrap();
    let census = Census::default();
    for _ in 0..10 {
        let tasks = (0..1_000).map(|n| {
            let counted = census.enter();
            NewTask::closure("counted", move |_| async move {
                let _counted = counted;
                Ok::<_, JobError>(n)
            })
        });
        let tasks = session.spawn_all(tasks).await.unwrap();
        let refs = tasks.iter().map(|task| task.as_ref().unwrap());
        let run_results = soon(session.wait_all(refs)).await.unwrap();
        assert_eq!(run_results.len(), 1_000);
        assert!(run_results.iter().all(|e| e.outcome.is_success() && !e.collected_before));
        // The loop evicts the tasks of a batch after its acknowledgement.
        session.set_limits(Limits::default()).await.unwrap();
        session.set_limits(Limits::default()).await.unwrap();
        assert!(session.list().is_empty(), "the view is empty");
    }
    assert_eq!(census.alive(), 0, "no closure and no capture remains");
    assert!(session.history(&Default::default()).await.unwrap().len() <= 100);
    let query = EventQuery { session: None, after: FeedCursor::START, limit: usize::MAX };
    assert!(store.events(&query).await.unwrap().items.len() <= 1_000);
    assert_eq!(session.row().last_task, Some(number(10_000)));
    let loaded = store.load(session.id()).await.unwrap().unwrap();
    assert!(loaded.tasks.is_empty() && loaded.keys.is_empty(), "a restart loads nothing");
}

#[tokio::test(start_paused = true)]
async fn uncollected_results_stay_until_they_are_collected() {
    let options =
        MemoryOptions { max_events: 100, max_finished_tasks: 10, max_processed_messages: 10 };
    let test = TestRuntime::on_store(Arc::new(MemoryStore::with_options(options)), |b| b).await;
    let tasks = test.session.spawn_all((0..200).map(returns)).await.unwrap();
    for task in &tasks {
        until(&test.session, task.as_ref().unwrap().no(), "succeeded").await;
    }
    assert_eq!(test.session.list().len(), 200);
    let keep_nothing = Retention { ended: Millis(0), events: Millis(0) };
    assert_eq!(test.runtime.prune(&keep_nothing).await.unwrap().tasks, 0);
    let run_results = eventually(test.session.wait_uncollected(WaitMode::All)).await.unwrap();
    assert_eq!(run_results.len(), 200);
}

#[tokio::test(start_paused = true)]
async fn uncollected_children_are_evicted_with_their_parent() {
    let test = TestRuntime::new(|b| b).await;
    let parent = NewTask::closure("parent", |ctx: JobContext| async move {
        for _ in 0..100 {
            ctx.spawn(returns(())).await?;
        }
        ctx.sleep(SECOND).await?;
        Ok::<_, JobError>(())
    });
    let parent = test.session.spawn(parent).await.unwrap();
    wait_result(&parent).await;
    let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
    test.session.set_limits(Limits::default()).await.unwrap();
    until_idle().await;
    assert!(listed(&operator).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_never_ran_drops_its_captures() {
    let test = TestRuntime::new(|b| b).await;
    test.session.set_limits(Limits { running: Some(1), ..Limits::default() }).await.unwrap();
    test.session.spawn(forever()).await.unwrap();
    let census = Census::default();
    let counted = census.enter();
    let queued = NewTask::closure("queued", move |_| async move {
        let _counted = counted;
        Ok::<_, JobError>(())
    });
    let queued = test.session.spawn(queued).await.unwrap();
    assert_eq!(census.alive(), 1);
    queued.stop(None).await.unwrap();
    wait_result(&queued).await;
    until_idle().await;
    assert_eq!(census.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_keyed_spawn_that_found_its_task_drops_its_own_closure() {
    let test = TestRuntime::new(|b| b).await;
    let census = Census::default();
    for _ in 0..3 {
        let counted = census.enter();
        let task = NewTask::closure("keyed", move |_| async move {
            let _counted = counted;
            std::future::pending::<()>().await;
            Ok::<_, JobError>(())
        });
        test.session.spawn(task.key("one")).await.unwrap();
    }
    until_idle().await;
    assert_eq!(census.alive(), 1);
}
