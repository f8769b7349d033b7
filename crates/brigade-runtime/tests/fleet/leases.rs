//! Names, leases and clocks of nodes.

use std::sync::Arc;

use brigade_model::refusal::RefusalKind;
use brigade_runtime::{NodeOptions, Runtime};
use brigade_store::MemoryStore;
use brigade_testkit::ConnectionCondition;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn two_nodes_of_one_name_are_refused() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let refused = Runtime::builder()
        .shared_store(fleet.store.clone())
        .clock(one.runtime.clock())
        .node(NodeOptions::new("one").lease(LEASE))
        .start()
        .await
        .unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    assert!(refused.message.contains("a node of the name \"one\" is running"), "{refused}");
    assert!(one.session("kitchen").await.list().is_empty(), "the first one is not disturbed");
}

#[tokio::test(start_paused = true)]
async fn a_store_of_one_runtime_refuses_nodes_and_bad_names_are_refused() {
    let builder = Runtime::builder().store(MemoryStore::new()).node(NodeOptions::new("one"));
    assert_eq!(builder.start().await.unwrap_err().kind, RefusalKind::Invalid);
    let fleet = TestFleet::new();
    for name in ["", "two words", "a\nb"] {
        let store: Arc<MemoryStore> = fleet.store.clone();
        let builder = Runtime::builder().shared_store(store).node(NodeOptions::new(name));
        assert_eq!(builder.start().await.unwrap_err().kind, RefusalKind::Invalid, "{name:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_lease_answers_unavailable_and_recovers() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let session = one.session("kitchen").await;
    one.connection.set(ConnectionCondition::Hangs);
    tokio::time::sleep(LEASE).await;
    let refused = session.spawn(SLEEP.with(1)).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Unavailable);
    one.connection.set(ConnectionCondition::Works);
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(session.spawn(SLEEP.with(1)).await.unwrap().result().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn nodes_report_their_load() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let session = one.session("kitchen").await;
    session.spawn(WORK.with(60)).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    let nodes = two.runtime.nodes().await.unwrap();
    let row = &nodes.iter().find(|node| node.row.name == "one").unwrap().row;
    assert_eq!((row.load.sessions, row.load.running, row.owned_sessions), (1, 1, 1));
    assert!(row.open && !row.draining);
    assert!(nodes.iter().filter(|node| node.is_own).all(|node| node.row.name == "two"));
}
