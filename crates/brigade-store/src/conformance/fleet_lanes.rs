//! Checks of the end of nodes and of their lanes.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::command::Caller;
use brigade_model::event::FeedItem;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Millis, Time};

use super::FleetHarness;
use super::fleet_nodes::{FleetNode, assert_fenced, spawn};
use super::writer::{SessionWriter, job};
use crate::batch::Batch;
use crate::fleet::NodeId;
use crate::store::{EventQuery, Retention, Store};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The age at which the checks prune events.
const EVENT_AGE: Millis = Millis(1_000);

async fn prune(store: &Arc<dyn Store>, now: Time) {
    let retention = Retention { ended: Millis(u64::MAX), events: EVENT_AGE };
    store.prune(&retention, now).await.expect("a prune");
}

async fn read(store: &Arc<dyn Store>, after: FeedCursor) -> Vec<FeedItem> {
    let query = EventQuery { session: None, after, limit: usize::MAX };
    store.events(&query).await.expect("events are read").items
}

async fn lanes(store: &Arc<dyn Store>) -> Vec<Lane> {
    let cursor = store.cursor().await.expect("a cursor");
    cursor.positions().iter().map(|position| position.lane).collect()
}

/// Opens a session in the lane of a node that is then closed, and moves it to another node. Its later
/// events are as much later as events are stored.
async fn moved_session(node: &FleetNode, other: &FleetNode) -> SessionWriter {
    let mut writer = node.open_session(1).await;
    writer.spawn(Caller::Operator, job()).await;
    node.fleet().close_node(node.id).await.expect("a close");
    writer.move_to(other.lane).await;
    writer.now = writer.now.after(EVENT_AGE);
    writer.spawn(Caller::Operator, job()).await;
    writer
}

/// Checks that a prune removes a node a day after its end, and its lane with the last event of it. Readers
/// go on, from the start and from a place in that lane.
pub async fn closed_nodes_go_with_their_lanes(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let node = FleetNode::join(&store, "a").await;
    let other = FleetNode::join(&store, "b").await;
    let mut writer = moved_session(&node, &other).await;
    let cursor = store.cursor().await.expect("a cursor");
    let early: FeedCursor =
        cursor.positions().iter().filter(|it| it.lane == node.lane).copied().collect();
    let mut moved = read(&store, cursor.clone()).await;
    assert!(moved.is_empty());
    harness.age_closed_nodes(DAY - Duration::from_secs(3_600)).await;
    prune(&store, writer.now).await;
    assert_eq!(lanes(&store).await, [node.lane, other.lane], "it is not old enough");
    harness.age_closed_nodes(Duration::from_secs(7_200)).await;
    prune(&store, writer.now).await;
    assert_eq!(lanes(&store).await, [other.lane]);
    let nodes: Vec<NodeId> =
        other.fleet().nodes().await.expect("nodes").iter().map(|it| it.id).collect();
    assert_eq!(nodes, [other.id]);

    moved = read(&store, FeedCursor::START).await;
    assert!(!moved.is_empty(), "the first event after the move is not held back");
    assert_eq!(read(&store, early).await, moved);
    writer.spawn(Caller::Operator, job()).await;
    let new = read(&store, cursor).await;
    assert!(!new.is_empty() && new.iter().all(|item| item.position.lane == other.lane));
    // The lane accepts nothing, and is not used again.
    let mut late = other.open_session(2).await;
    let part = spawn(&mut late).await;
    let batch = Batch { lane: node.lane, sessions: vec![part], ..Batch::default() };
    assert_fenced(&store, &batch).await;
    let again = FleetNode::join(&store, "a").await;
    assert!(again.lane > other.lane && again.id > other.id);
}

/// Checks that the lane of a closed node stays while it has an event, or owns a session.
pub async fn a_lane_stays_while_it_is_needed(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let owner = FleetNode::join(&store, "a").await;
    let with_event = FleetNode::join(&store, "b").await;
    let other = FleetNode::join(&store, "c").await;
    let owned = owner.open_session(2).await;
    let mut writer = with_event.open_session(3).await;
    with_event.fleet().close_node(with_event.id).await.expect("a close");
    owner.fleet().close_node(owner.id).await.expect("a close");
    writer.move_to(other.lane).await;
    harness.age_closed_nodes(2 * DAY).await;
    prune(&store, writer.now).await;
    assert_eq!(lanes(&store).await, [owner.lane, with_event.lane]);
    assert_eq!(other.fleet().nodes().await.expect("nodes").iter().filter(|it| it.open).count(), 1);
    prune(&store, writer.now.after(Millis(2 * EVENT_AGE.0))).await;
    assert_eq!(lanes(&store).await, [owner.lane], "it still owns a session");
    let claimed = other.claim_numbers(0, 10).await;
    assert_eq!(claimed, [owned.id().as_uuid().as_u128()]);
    prune(&store, writer.now.after(Millis(2 * EVENT_AGE.0))).await;
    assert!(lanes(&store).await.is_empty());
}
