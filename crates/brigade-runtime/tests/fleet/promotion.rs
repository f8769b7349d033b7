//! Nodes whose store continues from an earlier state, as after the promotion of a replica that lagged behind.

use brigade_model::feed_cursor::FeedCursor;
use brigade_runtime::FeedUpdate;
use brigade_testkit::ConnectionCondition;
use tokio::time::sleep;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn nodes_continue_from_the_state_of_a_promoted_replica() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    let kept = here.spawn(WORK.with(60)).await.unwrap();
    let slept = here.spawn(SLEEP.with(5)).await.unwrap();
    sleep(SECOND).await;
    let replica = fleet.store.snapshot();

    // All of this is acknowledged and lost: a spawn, an end, and a session.
    let lost = there.spawn(WORK.with(1_000)).await.unwrap();
    assert_eq!(slept.wait().await.unwrap().outcome.to_string(), "succeeded");
    let lost_session = two.session("cellar").await;
    lost_session.spawn(WORK.with(1_000)).await.unwrap();
    sleep(SECOND).await;
    let nodes_before = fleet_nodes(&one).await;
    fleet.store.restore(replica);

    // The nodes join again, and show what the store has.
    while fleet_nodes(&one).await == nodes_before {
        sleep(SECOND).await;
    }
    sleep(LEASE).await;
    for session in [&here, &there] {
        assert_eq!(session.list().len(), 2, "the lost task is not shown");
    }
    assert!(lost_session.list().is_empty());
    assert!(lost.wait().await.is_err(), "nobody knows the lost task");
    let lost_work = [fleet.work.spans(&here, lost.no().get()), fleet.work.spans(&lost_session, 1)];
    for spans in lost_work {
        assert_eq!(spans.len(), 1);
        assert!(spans[0].to.is_some(), "the store does not know it, so it was halted");
    }

    // Everything continues, also what had ended before it was lost.
    let slept_again = slept.wait().await.unwrap();
    assert_eq!(slept_again.outcome.to_string(), "succeeded");
    assert!(!slept_again.collected_before, "the store has lost the collection");
    assert_eq!(kept.wait().await.unwrap().outcome.to_string(), "succeeded");
    let next = two.session("cellar").await;
    assert_ne!(next.id(), lost_session.id());
    next.spawn(SLEEP.with(1)).await.unwrap().wait().await.unwrap();
    fleet.work.check();

    // A reader gets all events that are stored, and reaches the end.
    for node in [&one, &two] {
        sleep(SECOND).await;
        let end = node.runtime.cursor();
        let mut feed = node.runtime.subscribe(FeedCursor::START);
        let mut last = 0;
        while let Some(update) = feed.next_until(&end).await.unwrap() {
            let FeedUpdate::Event(item) = update else { panic!("a gap") };
            if item.record.session == here.id() {
                last += 1;
                assert_eq!(item.record.seq.0, last);
            }
        }
        let row = node.runtime.operator_session(here.id()).await.unwrap().row();
        assert_eq!(row.seq.0, last);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_at_rest_is_shown_as_the_promoted_replica_has_it() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    here.spawn(SLEEP.with(1)).await.unwrap();
    sleep(40 * SECOND).await;
    assert_eq!(one.owner(&here).await, None);
    let replica = fleet.store.snapshot();
    let nodes_before = fleet_nodes(&one).await;
    here.spawn(SLEEP.with(1)).await.unwrap();
    sleep(40 * SECOND).await;
    assert_eq!(one.owner(&here).await, None);
    assert_eq!((here.list().len(), there.list().len()), (2, 2));
    fleet.store.restore(replica);
    // No event says what was lost, and one node cannot reach the store for a while.
    one.connection.set(ConnectionCondition::Cut);
    sleep(2 * LEASE).await;
    one.connection.set(ConnectionCondition::Works);
    sleep(LEASE).await;
    let nodes = fleet_nodes(&one).await;
    assert!(nodes.iter().all(|node| !nodes_before.contains(node)), "{nodes:?}");
    assert_eq!((here.list().len(), there.list().len()), (1, 1));
}

/// Returns the ids of the open nodes.
async fn fleet_nodes(node: &TestNode) -> Vec<brigade_store::NodeId> {
    let nodes = node.runtime.nodes().await.unwrap();
    nodes.into_iter().filter(|node| node.row.open).map(|node| node.row.id).collect()
}
