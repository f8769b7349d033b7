//! Requests to a node that does not own the session.

use brigade_model::refusal::RefusalKind;
use brigade_model::task::TaskState;
use brigade_runtime::{JobContext, JobError, NewTask};
use brigade_testkit::ConnectionCondition;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn any_node_accepts_any_request() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    assert_eq!(here.id(), there.id());
    assert_eq!(two.owner(&there).await.as_deref(), Some("one"));

    // A spawn, a message and a wait, each through the other node.
    let task = there.spawn(ECHO.with(()).name("Echo")).await.unwrap();
    assert_eq!(there.list().len(), 1, "the spawn is visible to its caller");
    here.task("Echo").await.unwrap();
    there.send("Echo".parse::<brigade_model::address::TaskRef>().unwrap(), "hello").await.unwrap();
    assert_eq!(task.result().await.unwrap(), "hello");
    assert_eq!(one.owner(&here).await.as_deref(), Some("one"), "the owner has not changed");

    // A stop, whose effect is visible at once.
    let task = there.spawn(ECHO.with(())).await.unwrap();
    task.stop(Some("enough")).await.unwrap();
    assert!(task.get().await.unwrap().is_ending());
    assert!(task.wait().await.unwrap().outcome.to_string().starts_with("cancelled"));

    // Many commands at once.
    let spawned = there.spawn_all((0..300).map(|_| ECHO.with(()))).await.unwrap();
    assert_eq!(spawned.len(), 300);
    assert!(spawned.iter().all(Result::is_ok));
    let stopped = there.stop_all(None).await.unwrap();
    assert_eq!(stopped.tasks, 300);
    there.close(None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn refusals_and_closures_are_answered_too() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    let unknown = there.stop(brigade_model::ids::TaskNo::new(7).unwrap(), None).await.unwrap_err();
    assert_eq!(unknown.kind, RefusalKind::NotFound);
    let closure = NewTask::closure("tea", |_: JobContext| async { Ok::<_, JobError>(1) });
    let refused = there.spawn(closure).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    assert!(refused.message.contains("a closure runs only in its own process"));
    assert!(here.list().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wait_through_another_node_times_out_and_consumes_nothing() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    let task = there.spawn(ECHO.with(())).await.unwrap();
    assert!(task.wait_within(5 * SECOND).await.unwrap().is_none());
    task.send("late").await.unwrap();
    let result = task.wait().await.unwrap();
    assert!(!result.collected_before, "the wait that timed out has not collected it");
    assert!(here.task(task.no()).await.unwrap().wait().await.unwrap().collected_before);
}

#[tokio::test(start_paused = true)]
async fn calls_work_without_hints() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    one.connection.lose_hints();
    two.connection.lose_hints();
    let _here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    let task = there.spawn(ECHO.with(())).await.unwrap();
    task.send("polled").await.unwrap();
    assert_eq!(task.result().await.unwrap(), "polled");
    let row = task.get().await.unwrap();
    assert!(matches!(row.state, TaskState::Ended(_)));
}

#[tokio::test(start_paused = true)]
async fn a_spawn_with_a_key_is_one_task_on_all_nodes() {
    let fleet = TestFleet::new();
    let nodes = [fleet.node("one").await, fleet.node("two").await, fleet.node("three").await];
    let mut sessions = Vec::new();
    for node in &nodes {
        sessions.push(node.session("kitchen").await);
    }
    let spawns = sessions.iter().map(|session| session.spawn(SLEEP.with(1).key("once")));
    let spawned = futures_util::future::try_join_all(spawns).await.unwrap();
    assert!(spawned.iter().all(|task| task.no() == spawned[0].no()));
    assert_eq!(spawned.iter().filter(|task| !task.existed()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_name_is_one_session_on_all_nodes() {
    let fleet = TestFleet::new();
    let nodes = [fleet.node("one").await, fleet.node("two").await, fleet.node("three").await];
    let opened =
        futures_util::future::join_all(nodes.iter().map(|node| node.session("kitchen"))).await;
    assert!(opened.iter().all(|session| session.id() == opened[0].id()));
}

/// A wait is cancelled while the store cannot be reached.
#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_consumes_nothing_if_its_removal_fails_first() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    let task = there.spawn(ECHO.with(())).await.unwrap();
    let outage = async {
        tokio::time::sleep(SECOND).await;
        two.connection.set(ConnectionCondition::Cut);
        tokio::time::sleep(2 * SECOND).await;
        two.connection.set(ConnectionCondition::Works);
    };
    let (waited, ()) = tokio::join!(task.wait_within(2 * SECOND), outage);
    assert!(waited.unwrap().is_none());
    let echo = here.task(task.no()).await.unwrap();
    echo.send("done").await.unwrap();
    tokio::time::sleep(SECOND).await;
    assert!(
        !task.wait().await.unwrap().collected_before,
        "the cancelled wait has not collected it"
    );
}

#[tokio::test(start_paused = true)]
async fn many_open_waits_hide_no_call() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let _here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    let task = there.spawn(ECHO.with(())).await.unwrap();
    let waits = (0..1_500).map(|_| task.wait_within(10 * SECOND));
    let late = async {
        tokio::time::sleep(3 * SECOND).await;
        tokio::time::timeout(5 * SECOND, there.spawn(SLEEP.with(1))).await
    };
    let (waited, spawned) = tokio::join!(futures_util::future::join_all(waits), late);
    spawned.expect("the owner sees the call").unwrap();
    assert!(waited.into_iter().all(|waited| waited.unwrap().is_none()));
}

/// The task ends before its owner has noticed that the call of the wait was removed.
#[tokio::test(start_paused = true)]
async fn a_removed_wait_does_not_stop_the_owner() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    one.connection.lose_hints();
    let here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    for _ in 0..20 {
        let task = there.spawn(ECHO.with(())).await.unwrap();
        let echo = here.task(task.no()).await.unwrap();
        let end = async {
            tokio::time::sleep(2 * SECOND).await;
            echo.send("done").await.unwrap();
        };
        let (waited, ()) = tokio::join!(task.wait_within(2 * SECOND), end);
        if waited.unwrap().is_none() {
            assert!(!task.wait().await.unwrap().collected_before, "the first wait timed out");
        }
    }
    here.spawn(ECHO.with(())).await.unwrap();
}
