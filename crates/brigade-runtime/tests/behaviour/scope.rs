//! Visibility and control of tasks.

use std::collections::BTreeSet;
use std::sync::Arc;

use brigade_model::address::TaskRef;
use brigade_model::call::WaitMode;
use brigade_model::command::{Caller, Command, Recipient, SendCommand, StopCommand, StopTarget};
use brigade_model::event::Event;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Attempt, Lane, Position, RunNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::task::StoredTask;
use brigade_model::work::TaskKind;
use brigade_runtime::{ChildTask, FeedUpdate, JobContext, JobError, NewTask, Session};
use brigade_store::MemoryStore;
use brigade_testkit::TestRuntime;

use crate::support::*;

/// Runs a parent (1) with a child (2), and a task beside them (3).
async fn family() -> TestRuntime {
    let test = TestRuntime::new(|b| b).await;
    let parent = NewTask::closure("parent", |ctx: JobContext| async move {
        ctx.spawn(forever().name("Child")).await?;
        std::future::pending::<()>().await;
        Ok::<_, JobError>(())
    });
    test.session.spawn(parent).await.unwrap();
    until_idle().await;
    test.session.spawn(forever()).await.unwrap();
    test
}

fn as_task(no: u32) -> Caller {
    Caller::Task { no: number(no), attempt: Attempt(1) }
}

fn stop(caller: Caller, target: TaskNo) -> Command {
    let target = StopTarget::Task(target.into());
    Command::Stop(StopCommand { caller, target, reason: None, grace: None, call: None })
}

fn send(caller: Caller, to: TaskNo) -> Command {
    let to = Recipient::Task(to.into());
    Command::Send(SendCommand::new(caller, to, Json::null()))
}

async fn all_run(session: &Session) {
    for no in 1..=3 {
        assert_eq!(state(session, number(no)).await, "running", "{no}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_top_level_sees_only_top_level_tasks() {
    let test = family().await;
    let child = number(2);
    assert_eq!(listed(&test.session), [1, 3]);
    let history = test.session.history(&Default::default()).await.unwrap();
    assert_eq!(history.iter().map(|StoredTask { no, .. }| no.get()).collect::<Vec<_>>(), [1, 3]);
    refused(test.session.get(child).await, FORBIDDEN, "job:2");
    refused(test.session.wait_any([child]).await, FORBIDDEN, "job:2");
    refused(test.session.send(child, "psst").await, FORBIDDEN, "job:2");
    refused(test.session.stop(child, None).await, FORBIDDEN, "job:2");
    refused(test.session.earlier_run(child, RunNo(1)).await, FORBIDDEN, "job:2");
    let named: TaskRef = "Child".parse().unwrap();
    refused(test.session.get(named).await, NOT_FOUND, "\"Child\"");
}

#[tokio::test(start_paused = true)]
async fn a_missing_task_is_not_found_rather_than_forbidden() {
    let test = family().await;
    let none = number(9);
    refused(test.session.get(none).await, NOT_FOUND, "9");
    refused(test.session.wait_any([none]).await, NOT_FOUND, "9");
    refused(test.session.send(none, "psst").await, NOT_FOUND, "9");
    refused(test.session.stop(none, None).await, NOT_FOUND, "9");
    refused(test.session.resume(none, None).await, NOT_FOUND, "9");
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_call_changes_nothing() {
    let test = family().await;
    let before = test.runtime.cursor();
    refused(test.session.stop(number(2), None).await, FORBIDDEN, "job:2");
    refused(test.session.send(number(2), "psst").await, FORBIDDEN, "job:2");
    for (caller, target) in [(3, 1), (3, 2), (2, 1), (2, 3), (1, 3)] {
        for command in
            [stop(as_task(caller), number(target)), send(as_task(caller), number(target))]
        {
            let (reply, events) = test.submit(command).await;
            refused(reply, FORBIDDEN, &format!("job:{target}"));
            assert!(events.is_empty());
        }
    }
    assert_eq!(test.runtime.cursor(), before);
    all_run(&test.runtime.operator_session(test.session.id()).await.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_controls_what_it_spawned() {
    let test = family().await;
    let (reply, _) = test.submit(send(as_task(1), number(2))).await;
    reply.unwrap();
    let (reply, _) = test.submit(stop(as_task(1), number(2))).await;
    reply.unwrap();
    let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
    assert_eq!(state(&operator, number(2)).await, "stopping");
    assert_eq!(state(&operator, number(1)).await, "running");
}

#[tokio::test(start_paused = true)]
async fn an_ended_attempt_cannot_act_as_its_task() {
    let test = family().await;
    let old = Caller::Task { no: number(1), attempt: Attempt(0) };
    let (reply, events) = test.submit(stop(old, number(2))).await;
    refused(reply, ENDED, "attempt 0 of job:1 is over");
    assert!(events.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_waits_for_its_own_children_only() {
    let test = TestRuntime::new(|b| b).await;
    test.session.spawn(forever()).await.unwrap();
    let asks = NewTask::closure("asks", |ctx: JobContext| async move {
        let mut refusals = Vec::new();
        for no in [1, 2, 9] {
            let child = ChildTask::<()>::new(number(no), RunNo::FIRST, TaskKind::Job);
            let waited = ctx.wait([&child], WaitMode::All, None).await;
            refusals.push(waited.unwrap_err().to_string());
        }
        Ok::<_, JobError>(refusals)
    });
    let asks = test.session.spawn(asks).await.unwrap();
    let refusals = outcome(&asks).await;
    let expect = "[\"forbidden: job:1 is not a child of job:2\",\
         \"invalid: job:2 cannot wait for itself\",\
         \"not found: there is no task 9\"]";
    assert_eq!(*refusals, succeeded(expect));
}

#[tokio::test(start_paused = true)]
async fn the_operator_sees_every_task_and_consumes_nothing() {
    let test = family().await;
    let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
    assert_eq!(listed(&operator), [1, 2, 3]);
    operator.stop(number(2), Some("enough")).await.unwrap();
    let seen = eventually(operator.wait_all([number(2)])).await.unwrap();
    assert!(!seen[0].collected_before);
    let again = eventually(operator.wait_all([number(2)])).await.unwrap();
    assert!(!again[0].collected_before, "the operator consumes nothing");

    operator.stop(number(3), None).await.unwrap();
    let seen = eventually(operator.wait_all([number(3)])).await.unwrap();
    let taken = eventually(test.session.wait_all([number(3)])).await.unwrap();
    assert_eq!(seen, taken, "the client still gets it first");
}

#[tokio::test(start_paused = true)]
async fn stopping_everything_is_per_owner() {
    let test = family().await;
    let other = test.runtime.session("other").await.unwrap();
    other.spawn(forever()).await.unwrap();
    let command = Command::Stop(StopCommand {
        caller: as_task(1),
        target: StopTarget::Children,
        reason: None,
        grace: None,
        call: None,
    });
    test.submit(command).await.0.unwrap();
    let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
    assert_eq!(state(&operator, number(1)).await, "running");
    assert_eq!(state(&operator, number(2)).await, "stopping");
    assert_eq!(state(&operator, number(3)).await, "running");
    let stopped = test.session.stop_all(None).await.unwrap();
    assert_eq!(stopped.tasks, 3);
    assert_eq!(state(&other, number(1)).await, "running");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_does_not_exist_cannot_be_operated() {
    let test = TestRuntime::new(|b| b).await;
    let other = TestRuntime::new(|b| b).await;
    refused(test.runtime.operator_session(other.session.id()).await, NOT_FOUND, "no such session");
    let reply = test.runtime.submit(other.session.id(), stop(Caller::Operator, number(1))).await;
    refused(reply, NOT_FOUND, "no such session");
}

/// Returns the numbers of the tasks and the bodies of the messages in a session's feed.
async fn shown(session: &Session, after: FeedCursor) -> (BTreeSet<u32>, Vec<String>) {
    let mut feed = session.subscribe(after);
    let mut tasks = BTreeSet::new();
    let mut messages = Vec::new();
    while let Ok(message) = tokio::time::timeout(SECOND, feed.next()).await {
        let FeedUpdate::Event(item) = message.unwrap().unwrap() else { panic!("a gap") };
        tasks.extend(item.record.event.task().map(|no| no.get()));
        match &item.record.event {
            Event::MessageSent(message) => messages.push(message.body.to_string()),
            Event::Collected { runs } => tasks.extend(runs.iter().map(|run| run.no.get())),
            _ => {}
        }
    }
    (tasks, messages)
}

#[tokio::test(start_paused = true)]
async fn a_clients_feed_shows_its_own_tasks_and_the_operators_shows_all() {
    let store = Arc::new(MemoryStore::new());
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    let parent = NewTask::closure("parent", |ctx: JobContext| async move {
        ctx.receive().await?;
        let child = NewTask::closure("child", |ctx: JobContext| async move {
            ctx.receive().await?;
            ctx.send_parent("from the child").await?;
            Ok::<_, JobError>("secret")
        });
        let child = ctx.spawn(child).await?;
        ctx.send(&child, "to the child").await?;
        ctx.wait_all([&child]).await?;
        ctx.send_parent("to the client").await?;
        Ok::<_, JobError>(())
    });
    let task = test.session.spawn(parent).await.unwrap();
    until_idle().await;
    task.send("from the client").await.unwrap();
    wait_result(&task).await;
    let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
    let own = BTreeSet::from([1]);
    let all = BTreeSet::from([1, 2]);
    let to_client = ["\"from the client\"", "\"to the client\""].map(String::from);
    let (tasks, messages) = shown(&test.session, FeedCursor::START).await;
    assert_eq!((tasks, messages.as_slice()), (own.clone(), &to_client[..]));
    let (tasks, messages) = shown(&operator, FeedCursor::START).await;
    assert_eq!((tasks, messages.len()), (all, 4));
    // A subscriber that starts in the middle has not seen the owners of the tasks.
    for after in 0..test.runtime.cursor().number_in(Lane(0)) {
        let (tasks, _) = shown(&test.session, Position { lane: Lane(0), no: after }.into()).await;
        assert!(tasks.is_subset(&own), "{tasks:?} after {after}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_passed_to_the_session_is_shown_from_then_on() {
    let test = TestRuntime::new(|b| b).await;
    let parent = NewTask::closure("parent", |ctx: JobContext| async move {
        ctx.spawn(tidy().keep()).await?;
        Ok::<_, JobError>(())
    });
    wait_result(&test.session.spawn(parent).await.unwrap()).await;
    let mut feed = test.session.subscribe(FeedCursor::START);
    let mut of_child = Vec::new();
    while let Ok(message) = tokio::time::timeout(SECOND, feed.next()).await {
        let FeedUpdate::Event(item) = message.unwrap().unwrap() else { panic!("a gap") };
        of_child.extend((item.record.event.task() == Some(number(2))).then_some(item));
    }
    assert!(matches!(of_child[0].record.event, Event::PassedToSession { .. }), "{of_child:?}");
    test.session.stop(number(2), None).await.unwrap();
    assert!(matches!(next_event(&mut feed).await, Event::StopRequested { .. }));
}
