//! Spawning tasks and reading their outcomes.

use brigade_model::event::Event;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Attempt, CallIndex, Owner, RunNo, Time};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::task::TaskState;
use brigade_model::task::{QueueReason, StoredTask};
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{JobContext, JobError, NewTask};
use brigade_store::{EventQuery, MemoryStore, Store};
use brigade_testkit::TestRuntime;
use std::sync::Arc;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_spawn_returns_at_once_and_the_task_is_listed_at_once() {
    let test = TestRuntime::new(|b| b).await;
    assert!(test.session.list().is_empty(), "the list is empty at first");
    let task = test.session.spawn(forever()).await.unwrap();
    let list = test.session.list();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].no, task.no());
    assert_eq!(list[0].row.state.label(), "running");
    assert_eq!(list[0].row.spawned_at, TestRuntime::START, "its age is known");
}

#[tokio::test(start_paused = true)]
async fn a_task_without_a_slot_is_listed_as_queued() {
    let test = TestRuntime::new(|b| b).await;
    test.session.set_limits(Limits { running: Some(1), ..Limits::default() }).await.unwrap();
    test.session.spawn(forever()).await.unwrap();
    let queued = test.session.spawn(forever()).await.unwrap();
    let row = queued.get().await.unwrap();
    let TaskState::Queued(why) = &row.state else { panic!("{:?}", row.state) };
    assert_eq!(why.reason, QueueReason::RunningLimit(Owner::Session));
}

#[tokio::test(start_paused = true)]
async fn a_task_succeeds_with_its_result_or_fails_with_its_error_at_a_time() {
    let test = TestRuntime::new(|b| b).await;
    let nap = |ctx: JobContext| async move {
        ctx.sleep(SECOND).await?;
        Ok::<_, JobError>(vec![1, 2])
    };
    let fine = test.session.spawn(NewTask::closure("fine", nap)).await.unwrap();
    let fails = NewTask::closure("fails", |_| async { Err::<(), _>(JobError::new("no salt")) });
    let fails = test.session.spawn(fails).await.unwrap();
    assert_eq!(*outcome(&fails).await, failed("no salt"));
    let end = wait_result(&fine).await;
    assert_eq!(*end.outcome, succeeded("[1,2]"));
    assert_eq!(end.ended_at, Time(TestRuntime::START.0 + 1_000));
    let row = fine.get().await.unwrap();
    assert_eq!(row.ended().unwrap().at, end.ended_at);
}

#[tokio::test(start_paused = true)]
async fn a_result_stays_readable_after_the_handle_is_gone_and_after_it_was_collected() {
    let test = TestRuntime::new(|b| b).await;
    let no = test.session.spawn(returns("soup")).await.unwrap().no();
    let row = until(&test.session, no, "succeeded").await;
    assert_eq!(*row.ended().unwrap().outcome, succeeded("\"soup\""));
    eventually(test.session.wait_all([no])).await.unwrap();
    assert!(test.session.list().is_empty(), "it was evicted");
    let row = test.session.get(no).await.unwrap().row;
    assert_eq!(*row.ended().unwrap().outcome, succeeded("\"soup\""));
    assert_eq!(test.session.history(&Default::default()).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn addresses_are_sequential_per_session_and_continue_after_a_restart() {
    let store = Arc::new(MemoryStore::new());
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    let other = test.runtime.session("other").await.unwrap();
    for no in 1..=3 {
        let task = test.session.spawn(returns(())).await.unwrap();
        assert_eq!(task.address(), format!("job:{no}"));
        wait_result(&task).await;
    }
    assert_eq!(other.spawn(returns(())).await.unwrap().address(), "job:1");
    crash(test).await;
    let test = TestRuntime::on_store(store, |b| b).await;
    assert_eq!(test.session.spawn(returns(())).await.unwrap().address(), "job:4");
    let other = test.runtime.session("other").await.unwrap();
    assert_eq!(other.spawn(returns(())).await.unwrap().address(), "job:2");
}

#[tokio::test(start_paused = true)]
async fn the_spawner_of_a_task_is_recorded_with_it() {
    let test = TestRuntime::new(|b| {
        b.client("the test").job_named(
            "parent",
            RecoveryPolicy::resume_max_crashes(1),
            |ctx: JobContext, (): ()| async move {
                ctx.step("first", || async { Ok::<_, JobError>(()) }).await?;
                ctx.spawn(forever()).await?;
                std::future::pending::<()>().await;
                Ok::<_, JobError>(())
            },
        )
    })
    .await;
    let parent = test.session.spawn(NewTask::job("parent", ())).await.unwrap();
    until_idle().await;
    let row = parent.get().await.unwrap();
    assert_eq!(row.owner, Owner::Session);
    assert_eq!(row.client.as_ref().unwrap().name.0.as_ref(), "the test");
    assert_eq!(row.attempt, Attempt(1));
    let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
    let StoredTask { row: child, .. } = operator.get(number(2)).await.unwrap();
    assert_eq!(child.owner, Owner::Task(parent.no()));
    assert_eq!(child.owner_run, RunNo::FIRST);
    assert_eq!(child.call, Some(CallIndex(1)), "the index of the call, after the step");
    assert_eq!(child.client, None);
}

#[tokio::test(start_paused = true)]
async fn each_spawn_of_a_batch_succeeds_or_is_refused_by_itself() {
    let test = TestRuntime::new(|b| b).await;
    let tasks = vec![
        returns(1).name("Ann"),
        returns(2).name("parent"),
        returns(3).name("ann"),
        NewTask::job("unheard of", ()).erase(),
        returns(5),
    ];
    let spawned = test.session.spawn_all(tasks).await.unwrap();
    assert_eq!(spawned.len(), 5);
    assert_eq!(spawned[0].as_ref().unwrap().address(), "job:1");
    refused(spawned[1].clone(), INVALID, "reserved");
    refused(spawned[2].clone(), CONFLICT, "is taken by job:1");
    refused(spawned[3].clone(), NOT_FOUND, "unheard of");
    assert_eq!(spawned[4].as_ref().unwrap().address(), "job:2");
}

#[tokio::test(start_paused = true)]
async fn a_list_is_ordered_complete_and_without_collected_tasks() {
    let test = TestRuntime::new(|b| b).await;
    let tasks = test.session.spawn_all((0..150).map(|_| forever())).await.unwrap();
    let tasks: Vec<_> = tasks.into_iter().map(Result::unwrap).collect();
    assert_eq!(listed(&test.session), (1..=150).collect::<Vec<_>>(), "none cut off");
    tasks[99].stop(None).await.unwrap();
    assert_eq!(state(&test.session, tasks[99].no()).await, "stopping");
    until(&test.session, tasks[99].no(), "cancelled").await;
    assert_eq!(listed(&test.session).len(), 150, "its result is not collected yet");
    wait_result(&tasks[99]).await;
    let listed_numbers: Vec<u32> = (1..=150).filter(|no| *no != 100).collect();
    assert_eq!(listed(&test.session), listed_numbers);
}

#[tokio::test(start_paused = true)]
async fn a_large_result_arrives_whole() {
    let test = TestRuntime::new(|b| b).await;
    let text = "x".repeat(1_000_000);
    let task = test.session.spawn(returns(text.clone())).await.unwrap();
    let expect = Json::of(&text).unwrap();
    assert_eq!(*outcome(&task).await, succeeded(expect.as_str()));
}

/// The order of the events tells the order of the decisions.
#[tokio::test(start_paused = true)]
async fn a_spawn_does_not_wait_for_a_large_batch_of_another_session() {
    let store = Arc::new(MemoryStore::new());
    let test = TestRuntime::on_store(store.clone(), |b| b.max_batch(1024)).await;
    let other = test.runtime.session("other").await.unwrap();
    let large = test.session.spawn_all((0..2_000).map(|_| forever()));
    let (spawned, single) = tokio::join!(large, other.spawn(forever()));
    single.unwrap();
    let numbers = spawned.unwrap().into_iter().map(|task| task.unwrap().no().get());
    assert_eq!(numbers.collect::<Vec<_>>(), (1..=2_000).collect::<Vec<_>>());
    let query = EventQuery { session: None, after: FeedCursor::START, limit: usize::MAX };
    let page = store.events(&query).await.unwrap();
    let spawns = page.items.iter().filter(|item| matches!(item.record.event, Event::Spawned(_)));
    let sessions: Vec<_> = spawns.map(|item| item.record.session).collect();
    let at = sessions.iter().position(|session| *session == other.id()).unwrap();
    assert!(at < 1_000, "it came after {at} of 2,000 spawns");
}
