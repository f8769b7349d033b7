//! Sessions of a node that ends.

use std::time::Duration;

use brigade_model::refusal::RefusalKind;
use brigade_testkit::ConnectionCondition;
use tokio::time::Instant;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn sessions_of_a_dead_node_continue_on_another_within_twice_the_lease() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    let work = here.spawn(WORK.with(60)).await.unwrap();
    let echo = here.spawn(ECHO.with(())).await.unwrap();
    tokio::time::sleep(SECOND).await;
    let killed = Instant::now();
    drop((here, work, echo, one));
    two.wait_for_owner(&there, Some("two")).await;
    assert!(killed.elapsed() <= 2 * LEASE, "{:?}", killed.elapsed());
    there.send(brigade_model::ids::TaskNo::new(2).unwrap(), "hello").await.unwrap();
    let results = there.wait_uncollected(brigade_model::call::WaitMode::All).await.unwrap();
    assert!(results.iter().all(|result| result.outcome.to_string() == "succeeded"));
    assert_eq!(results.len(), 2);
    let spans = fleet.work.spans(&there, 1);
    assert_eq!(spans.iter().map(|span| span.node.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    fleet.work.check();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_gives_the_sessions_away_at_once() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    here.spawn(WORK.with(60)).await.unwrap();
    drop(here);
    let before = Instant::now();
    one.runtime.shutdown().await.unwrap();
    two.wait_for_owner(&there, Some("two")).await;
    assert!(before.elapsed() < 2 * SECOND, "{:?}", before.elapsed());
    there.wait_uncollected(brigade_model::call::WaitMode::All).await.unwrap();
    fleet.work.check();
}

#[tokio::test(start_paused = true)]
async fn a_wait_survives_the_end_of_the_owner() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    let task = there.spawn(SLEEP.with(40)).await.unwrap();
    let killer = async {
        tokio::time::sleep(5 * SECOND).await;
        drop((here, one));
    };
    let (result, ()) = tokio::join!(task.wait(), killer);
    let result = result.unwrap();
    assert_eq!(result.outcome.to_string(), "succeeded");
    assert!(!result.collected_before);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_its_database_halts_before_another_one_continues() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    here.spawn(WORK.with(60)).await.unwrap();
    tokio::time::sleep(SECOND).await;
    for condition in [ConnectionCondition::Hangs, ConnectionCondition::Cut] {
        let owner = if condition == ConnectionCondition::Hangs { &one } else { &two };
        let other = if condition == ConnectionCondition::Hangs { &two } else { &one };
        let session = if condition == ConnectionCondition::Hangs { &there } else { &here };
        let name = if condition == ConnectionCondition::Hangs { "two" } else { "one" };
        owner.connection.set(condition);
        other.wait_for_owner(session, Some(name)).await;
        tokio::time::sleep(5 * SECOND).await;
        fleet.work.check();
        // The node that was away joins again and answers requests for the session of the other one.
        owner.connection.set(ConnectionCondition::Works);
        tokio::time::sleep(5 * SECOND).await;
        let again = owner.session("kitchen").await;
        assert_eq!(owner.owner(&again).await.as_deref(), Some(name));
    }
    let results = here.wait_uncollected(brigade_model::call::WaitMode::All).await.unwrap();
    assert_eq!(results.len(), 1);
    let nodes = fleet.work.spans(&here, 1).into_iter().map(|span| span.node).collect::<Vec<_>>();
    assert_eq!(nodes, ["one", "two", "one"]);
    fleet.work.check();
}

#[tokio::test(start_paused = true)]
async fn many_sessions_are_shared_by_the_other_nodes() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let three = fleet.node("three").await;
    for number in 0..500 {
        let session = one.session(&format!("session {number}")).await;
        session.spawn(SLEEP.with(20)).await.unwrap();
    }
    let killed = Instant::now();
    drop(one);
    loop {
        let nodes = two.runtime.nodes().await.unwrap();
        let owned = |name: &str| {
            nodes.iter().find(|node| node.row.name == name).unwrap().row.owned_sessions
        };
        if owned("two") + owned("three") == 500 {
            assert!(owned("two") > 0 && owned("three") > 0);
            break;
        }
        assert!(killed.elapsed() <= 2 * LEASE);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(three);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_node_takes_its_name_after_its_lease() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let session = one.session("kitchen").await;
    session.spawn(SLEEP.with(3)).await.unwrap();
    drop((session, one));
    let before = Instant::now();
    let again = fleet.node("one").await;
    assert!(before.elapsed() <= 2 * LEASE);
    let session = again.session("kitchen").await;
    assert_eq!(
        session.wait_uncollected(brigade_model::call::WaitMode::All).await.unwrap().len(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_arrives_after_its_session_has_moved_on_is_dropped() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let session = one.session("kitchen").await;
    let task = session.spawn(ECHO.with(())).await.unwrap().no();
    let there = two.session("kitchen").await;
    drop((session, one));
    tokio::time::sleep(LEASE / 2).await;
    two.connection.hold_next_load();
    // The second node claims the session. Before the claim arrives, a request acquires the session, and the
    // node gives it to the third.
    two.connection.wait_load_held().await;
    assert_eq!(two.owner(&there).await.as_deref(), Some("two"));
    there.spawn(ECHO.with(())).await.unwrap();
    let three = fleet.node("three").await;
    two.runtime.move_session(there.id(), "three").await.unwrap();
    three.wait_for_owner(&there, Some("three")).await;
    let elsewhere = three.session("kitchen").await;
    elsewhere.send(task, "read").await.unwrap();
    while elsewhere.get(task).await.unwrap().row.is_alive() {
        tokio::time::sleep(SECOND).await;
    }
    two.connection.release_load();
    tokio::time::sleep(SECOND).await;
    assert!(!there.get(task).await.unwrap().row.is_alive(), "it is read as it is stored");
    assert_eq!(two.owner(&there).await.as_deref(), Some("three"));
    assert_eq!(two.connection.fenced_commits(), 0, "it does nothing for a session of another node");
}

/// The acquisition has given the session a later epoch than the claim.
#[tokio::test(start_paused = true)]
async fn a_claim_that_arrives_after_an_acquisition_without_an_answer_is_dropped() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let session = one.session("kitchen").await;
    session.spawn(ECHO.with(())).await.unwrap();
    let there = two.session("kitchen").await;
    drop((session, one));
    tokio::time::sleep(LEASE / 2).await;
    two.connection.hold_next_load();
    two.connection.wait_load_held().await;
    two.connection.cut_after_acquisition();
    let refused = there.spawn(ECHO.with(())).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Unavailable);
    two.connection.set(ConnectionCondition::Works);
    two.connection.release_load();
    tokio::time::sleep(SECOND).await;
    there.spawn(ECHO.with(())).await.unwrap();
    assert_eq!(two.owner(&there).await.as_deref(), Some("two"));
    assert_eq!(two.connection.fenced_commits(), 0, "it writes nothing with the epoch of the claim");
}
