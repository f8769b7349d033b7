//! Sessions at rest have no owner.

use brigade_model::call::WaitMode;
use brigade_model::refusal::RefusalKind;
use brigade_runtime::NodeOptions;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_session_at_rest_has_no_owner_and_its_timer_finds_one() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    here.spawn(SLEEP.with(300)).await.unwrap();
    one.wait_for_owner(&here, None).await;
    assert_eq!(here.list().len(), 1, "its tasks are still listed");
    let there = two.session("kitchen").await;
    tokio::time::sleep(400 * SECOND).await;
    let results = there.wait_uncollected(WaitMode::All).await;
    // Another client started the task, so the operator looks.
    drop(results);
    let operator = two.runtime.operator_session(here.id()).await.unwrap();
    let ended = operator.get("1").await.unwrap();
    assert!(!ended.row.is_alive(), "{:?}", ended.row.state);
}

#[tokio::test(start_paused = true)]
async fn a_request_wakes_a_session_at_rest_on_the_node_that_gets_it() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    let task = here.spawn(ECHO.with(())).await.unwrap();
    one.wait_for_owner(&here, None).await;
    let there = two.session("kitchen").await;
    there.send(task.no(), "awake").await.unwrap();
    assert_eq!(two.owner(&there).await.as_deref(), Some("two"));
    assert_eq!(task.result().await.unwrap(), "awake", "the first node asks the second");
}

#[tokio::test(start_paused = true)]
async fn a_request_wakes_a_session_only_on_a_node_with_its_labels() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let options = NodeOptions::new("two").lease(LEASE).label("gpu");
    let two = fleet.node_with("two", |builder| builder.node(options)).await;
    let here = one.session("kitchen").await;
    let task = here.spawn(ECHO.with(())).await.unwrap();
    one.runtime.require_labels(here.id(), &["gpu".to_owned()]).await.unwrap();
    one.wait_for_owner(&here, Some("two")).await;
    one.wait_for_owner(&here, None).await;
    here.send(task.no(), "awake").await.unwrap();
    assert_eq!(two.owner(&here).await.as_deref(), Some("two"));
    assert_eq!(task.result().await.unwrap(), "awake");
}

#[tokio::test(start_paused = true)]
async fn a_busy_session_stays_with_its_owner() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let _two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    here.spawn(WORK.with(600)).await.unwrap();
    tokio::time::sleep(300 * SECOND).await;
    assert_eq!(one.owner(&here).await.as_deref(), Some("one"));
}

#[tokio::test(start_paused = true)]
async fn a_node_reports_no_load_for_what_it_has_given_up() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let here = one.session("kitchen").await;
    here.spawn(SLEEP.with(600)).await.unwrap();
    let load = async || one.runtime.nodes().await.unwrap()[0].row.load;
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(load().await.sessions, 1);
    one.wait_for_owner(&here, None).await;
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(load().await.sessions, 0);
}

#[tokio::test(start_paused = true)]
async fn a_draining_node_gives_up_what_rests_and_claims_nothing() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    here.spawn(SLEEP.with(60)).await.unwrap();
    two.runtime.drain_node("one", true).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(one.owner(&here).await, None, "it does not wait for 30 seconds");
    tokio::time::sleep(90 * SECOND).await;
    let there = two.runtime.operator_session(here.id()).await.unwrap();
    assert!(!there.get("1").await.unwrap().row.is_alive());
    let nodes = one.runtime.nodes().await.unwrap();
    assert!(nodes.iter().any(|node| node.row.draining && node.row.name == "one"));
}

#[tokio::test(start_paused = true)]
async fn a_session_moves_to_a_node_as_soon_as_nothing_of_it_runs() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let _three = fleet.node("three").await;
    let here = one.session("kitchen").await;
    here.spawn(WORK.with(20)).await.unwrap();
    two.runtime.move_session(here.id(), "two").await.unwrap();
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(one.owner(&here).await.as_deref(), Some("one"), "its work is not interrupted");
    two.wait_for_owner(&here, Some("two")).await;
    let unknown = two.runtime.move_session(here.id(), "four").await.unwrap_err();
    assert_eq!(unknown.kind, RefusalKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_its_next_owner_does_not_claim_goes_elsewhere() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let full = NodeOptions::new("two").lease(LEASE).capacity(0);
    let _two = fleet.node_with("two", |builder| builder.node(full)).await;
    let here = one.session("kitchen").await;
    let task = here.spawn(ECHO.with(())).await.unwrap();
    one.runtime.move_session(here.id(), "two").await.unwrap();
    one.wait_for_owner(&here, None).await;
    let released = tokio::time::Instant::now();
    one.wait_for_owner(&here, Some("one")).await;
    assert!(released.elapsed() <= 10 * SECOND, "{:?}", released.elapsed());
    task.send("still here").await.unwrap();
    assert_eq!(task.result().await.unwrap(), "still here");
}
