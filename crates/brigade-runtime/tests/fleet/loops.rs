//! Nodes with several loops.

use brigade_model::call::WaitMode;
use brigade_runtime::Session;
use brigade_testkit::ConnectionCondition;
use futures_util::future::join_all;

use crate::support::*;

const SESSIONS: usize = 9;

async fn sessions(node: &TestNode) -> Vec<Session> {
    let mut sessions = Vec::new();
    for at in 0..SESSIONS {
        sessions.push(node.session(&format!("session {at}")).await);
    }
    sessions
}

#[tokio::test(start_paused = true)]
async fn sessions_of_all_loops_move_to_a_node_with_another_number_of_them() {
    let fleet = TestFleet::new();
    let one = fleet.node_with("one", |builder| builder.loops(3)).await;
    let two = fleet.node_with("two", |builder| builder.loops(2)).await;
    let here = sessions(&one).await;
    let there = sessions(&two).await;
    for session in &here {
        session.spawn(WORK.with(60)).await.unwrap();
        session.spawn(SLEEP.with(90)).await.unwrap();
    }
    // The other node asks the owner's loops.
    join_all(there.iter().map(|it| async { it.spawn(WORK.with(1)).await.unwrap() })).await;
    tokio::time::sleep(SECOND).await;
    drop((here, one));
    for session in &there {
        two.wait_for_owner(session, Some("two")).await;
        let results = session.wait_uncollected(WaitMode::All).await.unwrap();
        assert_eq!(results.len(), 3);
        assert!(results.iter().all(|result| result.outcome.to_string() == "succeeded"));
    }
    fleet.work.check();
}

#[tokio::test(start_paused = true)]
async fn all_loops_continue_after_one_new_join() {
    let fleet = TestFleet::new();
    let one = fleet.node_with("one", |builder| builder.loops(4)).await;
    let sessions = sessions(&one).await;
    for session in &sessions {
        session.spawn(WORK.with(30)).await.unwrap();
    }
    for condition in [ConnectionCondition::Cut, ConnectionCondition::Hangs] {
        one.connection.set(condition);
        tokio::time::sleep(3 * LEASE).await;
        one.connection.set(ConnectionCondition::Works);
        tokio::time::sleep(LEASE).await;
        for session in &sessions {
            one.wait_for_owner(session, Some("one")).await;
        }
    }
    for session in &sessions {
        let results = session.wait_uncollected(WaitMode::All).await.unwrap();
        assert_eq!(results[0].outcome.to_string(), "succeeded");
    }
    let nodes = one.runtime.nodes().await.unwrap();
    let open = nodes.iter().filter(|node| node.row.open).count();
    assert_eq!((open, nodes.len()), (1, 3), "one join after each lost lease");
    fleet.work.check();
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_a_node_gives_the_sessions_of_all_loops_away() {
    let fleet = TestFleet::new();
    let one = fleet.node_with("one", |builder| builder.loops(3)).await;
    let two = fleet.node_with("two", |builder| builder.loops(3)).await;
    let sessions = sessions(&one).await;
    for session in &sessions {
        session.spawn(SLEEP.with(60)).await.unwrap();
    }
    two.runtime.drain_node("one", true).await.unwrap();
    for session in &sessions {
        one.wait_for_owner(session, None).await;
    }
    for session in &sessions {
        let results = session.wait_uncollected(WaitMode::All).await.unwrap();
        assert_eq!(results[0].outcome.to_string(), "succeeded");
        assert_ne!(two.owner(session).await.as_deref(), Some("one"));
    }
}
