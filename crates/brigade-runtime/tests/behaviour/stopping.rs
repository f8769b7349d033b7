//! Stopping tasks and their descendants.

use brigade_model::command::{Caller, Command, SpawnCommand};
use brigade_model::event::Event;
use brigade_model::ids::{Attempt, MessageNo, Time};
use brigade_model::message::Receipt;
use brigade_model::outcome::{EndConfirmation, StopInitiator};
use brigade_model::spec::TaskSpec;
use brigade_model::task::StoredTask;
use brigade_model::work::{JobWork, RecoveryPolicy, Work};
use brigade_runtime::{JobContext, JobError, JobTask, NewTask};
use brigade_store::{EventQuery, MemoryStore, Store};
use brigade_testkit::TestRuntime;
use std::sync::Arc;

use crate::support::*;

/// Returns a closure with two children of the same kind, down to this depth.
fn tree(depth: u32, census: &Census) -> NewTask<JobTask<()>> {
    let census = census.clone();
    NewTask::closure("tree", move |ctx: JobContext| async move {
        let _counted = census.enter();
        if depth > 0 {
            for _ in 0..2 {
                ctx.spawn(tree(depth - 1, &census)).await?;
            }
        }
        std::future::pending::<()>().await;
        Ok::<_, JobError>(())
    })
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_an_ended_task_is_a_success_that_does_nothing() {
    let test = TestRuntime::new(|b| b).await;
    let task = test.session.spawn(returns(1)).await.unwrap();
    until(&test.session, task.no(), "succeeded").await;
    let before = test.runtime.cursor();
    let stopped = task.stop(None).await.unwrap();
    assert_eq!((stopped.tasks, stopped.already_stopped), (0, true));
    assert_eq!(test.runtime.cursor(), before);
    assert_eq!(*outcome(&task).await, succeeded("1"), "still a success");
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_while_stopping_changes_nothing() {
    let test = TestRuntime::new(|b| b).await;
    let task = test.session.spawn(forever().grace(3 * SECOND)).await.unwrap();
    let first = task.stop(Some("first")).await.unwrap();
    assert_eq!((first.tasks, first.already_stopped), (1, false));
    tokio::time::sleep(SECOND).await;
    let second = task.stop(Some("second")).await.unwrap();
    assert_eq!((second.tasks, second.already_stopped), (1, true));
    let end = wait_result(&task).await;
    assert_eq!(cancelled(&end.outcome).order.reason.as_deref(), Some("first"));
    assert_eq!(end.ended_at, Time(TestRuntime::START.0 + 3_000), "the first deadline stands");
}

#[tokio::test(start_paused = true)]
async fn a_stop_reaches_every_descendant_and_counts_them() {
    let test = TestRuntime::new(|b| b).await;
    let census = Census::default();
    let root = test.session.spawn(tree(4, &census)).await.unwrap();
    until_idle().await;
    assert_eq!(census.alive(), 31);
    let stopped = root.stop(None).await.unwrap();
    assert_eq!(stopped.tasks, 31);
    assert_eq!(outcome(&root).await.label(), "cancelled");
    until_idle().await;
    assert_eq!(census.alive(), 0, "no future of the subtree remains");
    let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
    for StoredTask { no, row } in operator.history(&Default::default()).await.unwrap() {
        assert_eq!(row.state.label(), "cancelled", "{no}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subtree_of_thousands_is_stopped_completely_in_sweeps() {
    let test = TestRuntime::new(|b| b).await;
    let census = Census::default();
    let counted = census.clone();
    let wide = NewTask::closure("wide", move |ctx: JobContext| async move {
        for _ in 0..1_500 {
            ctx.spawn(tree(0, &counted)).await?;
        }
        std::future::pending::<()>().await;
        Ok::<_, JobError>(())
    });
    let wide = test.session.spawn(wide).await.unwrap();
    until_idle().await;
    assert_eq!(census.alive(), 1_500);
    assert_eq!(wide.stop(None).await.unwrap().tasks, 1_501);
    assert_eq!(outcome(&wide).await.label(), "cancelled");
    until_idle().await;
    assert_eq!(census.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stopping_task_cannot_spawn() {
    let test = TestRuntime::new(|b| b).await;
    let late = NewTask::closure("late", |ctx: JobContext| async move {
        ctx.stop_token().cancelled().await;
        let refused = ctx.spawn(forever()).await.unwrap_err();
        Ok::<_, JobError>(refused.to_string())
    });
    let late = test.session.spawn(late).await.unwrap();
    until_idle().await;
    late.stop(None).await.unwrap();
    let end = outcome(&late).await;
    let expect = "\"ended: job:1 is stopping; nothing new starts under it\"";
    assert_eq!(late_result(&end), expect);
    assert_eq!(test.session.row().last_task, Some(number(1)));
}

#[tokio::test(start_paused = true)]
async fn a_descendant_of_a_stopping_task_cannot_spawn() {
    let test = TestRuntime::new(|b| b).await;
    let census = Census::default();
    let root = test.session.spawn(tree(2, &census).grace(60 * SECOND)).await.unwrap();
    until_idle().await;
    let deep = number(4);
    root.stop(None).await.unwrap();
    let caller = Caller::Task { no: deep, attempt: Attempt(1) };
    let spec = Arc::new(TaskSpec::new(Work::Job(JobWork::Closure { label: "late".into() })));
    let (reply, events) =
        test.submit(Command::Spawn(SpawnCommand { caller, spec, call: None })).await;
    refused(reply, ENDED, "nothing new starts under it");
    assert!(events.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_can_stop_itself_and_its_children_go_with_it() {
    let test = TestRuntime::new(|b| b).await;
    let census = Census::default();
    let counted = census.clone();
    let task = NewTask::closure("stops itself", move |ctx: JobContext| async move {
        ctx.spawn(tree(1, &counted)).await?;
        let stopped = ctx.stop_itself(Some("had enough")).await?;
        assert!(ctx.is_stopping() || stopped.tasks > 0);
        ctx.stop_token().cancelled().await;
        Ok::<_, JobError>(stopped.tasks)
    });
    let task = test.session.spawn(task).await.unwrap();
    let end = outcome(&task).await;
    let outcome = cancelled(&end);
    assert_eq!(outcome.order.by, StopInitiator::Itself);
    assert_eq!(outcome.order.reason.as_deref(), Some("had enough"));
    let reached: u32 = late_result(&end).parse().unwrap();
    assert!((2..=4).contains(&reached), "itself and what had been spawned by then: {reached}");
    until_idle().await;
    assert_eq!(census.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_task_is_cancelled_even_if_it_returns_a_result() {
    let test = TestRuntime::new(|b| b).await;
    let task = test.session.spawn(tidy()).await.unwrap();
    task.stop(None).await.unwrap();
    let end = outcome(&task).await;
    assert_eq!(late_result(&end), "\"tidied\"");
    assert_eq!(cancelled(&end).confirmation, EndConfirmation::Confirmed);
}

#[tokio::test(start_paused = true)]
async fn a_stop_wakes_a_suspended_job() {
    let test = TestRuntime::new(|b| {
        b.job_named(
            "naps",
            RecoveryPolicy::resume_max_crashes(1),
            |ctx: JobContext, (): ()| async move {
                ctx.sleep(3600 * SECOND).await?;
                Ok::<_, JobError>(())
            },
        )
    })
    .await;
    let closure = NewTask::closure("naps", |ctx: JobContext| async move {
        ctx.receive().await?;
        Ok::<_, JobError>(())
    });
    for task in [NewTask::job("naps", ()).erase(), closure.erase()] {
        let task = test.session.spawn(task).await.unwrap();
        until(&test.session, task.no(), "waiting").await;
        let now = tokio::time::Instant::now();
        task.stop(None).await.unwrap();
        assert_eq!(outcome(&task).await.label(), "cancelled");
        assert_eq!(now.elapsed(), std::time::Duration::ZERO, "nobody had to be waited for");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_task_is_stopped_without_ever_having_run() {
    let test = TestRuntime::new(|b| b).await;
    let limits = brigade_model::limits::Limits { running: Some(1), ..Default::default() };
    test.session.set_limits(limits).await.unwrap();
    test.session.spawn(forever()).await.unwrap();
    let tally = Tally::default();
    let ran = tally.clone();
    let queued = NewTask::closure("queued", |_| async move {
        ran.add();
        Ok::<_, JobError>(())
    });
    let queued = test.session.spawn(queued).await.unwrap();
    queued.stop(None).await.unwrap();
    assert_eq!(outcome(&queued).await.label(), "cancelled");
    until_idle().await;
    assert_eq!(tally.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_parent_stops_its_children() {
    let test = TestRuntime::new(|b| b).await;
    for returns_well in [true, false] {
        let census = Census::default();
        let counted = census.clone();
        let parent = NewTask::closure("parent", move |ctx: JobContext| async move {
            ctx.spawn(tree(1, &counted)).await?;
            if returns_well { Ok("done") } else { Err(JobError::new("burnt")) }
        });
        let parent = test.session.spawn(parent).await.unwrap();
        let end = outcome(&parent).await;
        assert_eq!(end.is_success(), returns_well, "its outcome does not depend on its children");
        until_idle().await;
        assert_eq!(census.alive(), 0, "it ends after its children");
        let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
        let child = number(parent.no().get() + 1);
        let row = operator.get(child).await.unwrap().row;
        let end = cancelled(&row.ended().unwrap().outcome).order.clone();
        assert_eq!(end.by, StopInitiator::ParentEnded);
    }
}

#[tokio::test(start_paused = true)]
async fn a_kept_child_outlives_its_parent_and_belongs_to_the_session() {
    let test = TestRuntime::new(|b| b).await;
    let parent = NewTask::closure("parent", |ctx: JobContext| async move {
        ctx.spawn(tidy().keep()).await?;
        ctx.spawn(tidy()).await?;
        Ok::<_, JobError>(())
    });
    let parent = test.session.spawn(parent).await.unwrap();
    assert!(outcome(&parent).await.is_success());
    assert_eq!(listed(&test.session), [2]);
    assert_eq!(state(&test.session, number(2)).await, "running");
    test.session.stop(number(2), None).await.unwrap();
    let ended = eventually(test.session.wait_all([number(2)])).await.unwrap();
    assert_eq!(late_result(&ended[0].outcome), "\"tidied\"");
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_the_parent_takes_kept_children_too() {
    let test = TestRuntime::new(|b| b).await;
    let census = Census::default();
    let counted = census.clone();
    let parent = NewTask::closure("parent", move |ctx: JobContext| async move {
        ctx.spawn(tree(0, &counted).keep()).await?;
        std::future::pending::<()>().await;
        Ok::<_, JobError>(())
    });
    let parent = test.session.spawn(parent).await.unwrap();
    until_idle().await;
    assert_eq!(parent.stop(None).await.unwrap().tasks, 2);
    outcome(&parent).await;
    until_idle().await;
    assert_eq!(census.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn closing_a_session_stops_its_tasks_and_refuses_new_ones() {
    let test = TestRuntime::new(|b| b).await;
    let task = test.session.spawn(tidy()).await.unwrap();
    let unread = task.send("unread").await.unwrap();
    test.session.close(Some("closing time")).await.unwrap();
    refused(test.session.spawn(forever()).await, ENDED, "closed");
    let end = outcome(&task).await;
    assert_eq!(cancelled(&end).order.by, StopInitiator::SessionClosed);
    assert_eq!(unread, MessageNo(1));
    let receipt = test.session.receipt(unread).await.unwrap().unwrap().receipt;
    assert!(matches!(receipt, Receipt::DeadLettered(_)), "{receipt:?}");
    let again = test.runtime.session("test").await.unwrap();
    assert_ne!(again.id(), test.session.id(), "the name is free for another session");
}

/// The order of the events tells the order of the decisions.
#[tokio::test(start_paused = true)]
async fn a_spawn_does_not_wait_for_the_stop_of_many_tasks_of_another_session() {
    let store = Arc::new(MemoryStore::new());
    let test = TestRuntime::on_store(store.clone(), |b| b.max_batch(256)).await;
    test.session.spawn_all((0..2_000).map(|_| forever())).await.unwrap();
    let other = test.runtime.session("other").await.unwrap();
    let after = test.runtime.cursor();
    let (stopped, single) = tokio::join!(test.session.stop_all(None), other.spawn(forever()));
    single.unwrap();
    let stopped = stopped.unwrap();
    assert_eq!((stopped.tasks, stopped.already_stopped), (2_000, false));
    let page = store.events(&EventQuery { session: None, after, limit: usize::MAX }).await.unwrap();
    let stops_before = page
        .items
        .iter()
        .take_while(|item| item.record.session != other.id())
        .filter(|item| matches!(item.record.event, Event::StopRequested { .. }))
        .count();
    assert!(stops_before < 1_000, "it came after {stops_before} of 2,000 stops");
}
