//! Two daemons as nodes of one fleet, on a store in memory.

use std::sync::Arc;

use brigade_model::refusal::RefusalKind;
use brigade_protocol::DaemonConnection;
use brigade_protocol::http::NodeBody;
use brigade_protocol::requests::{
    DrainNodeRequest, ListNodesRequest, ListSessionsRequest, MoveSessionRequest,
    RequireLabelsRequest,
};
use brigade_runtime::{Clock, Job, JobContext, JobError, NodeOptions, SystemClock};
use brigade_store::{MemoryStore, Store};
use tokio::time::timeout;

use crate::support::{SESSION, TEST_TIMEOUT, TestDaemon, expect_refusal};

/// Waits for a message.
const ECHO: Job<(), String> = Job::new("echo");

struct TestFleet {
    one: TestDaemon,
    two: TestDaemon,
}

impl TestFleet {
    async fn start() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::shared_by_nodes(|| SystemClock.now()));
        let start = async |options: NodeOptions| {
            let store = store.clone();
            TestDaemon::start(|builder| {
                let echo = async |ctx: JobContext, ()| {
                    Ok::<_, JobError>(ctx.receive().await?.body.decode::<String>()?)
                };
                builder.shared_store(store).node(options).job(ECHO, echo)
            })
            .await
        };
        let one = start(NodeOptions::new("one").label("gpu").capacity(7)).await;
        Self { one, two: start(NodeOptions::new("two")).await }
    }
}

async fn list_nodes(client: &DaemonConnection) -> Vec<NodeBody> {
    let listed = client.call(ListNodesRequest {}).await.unwrap();
    assert!(listed.fleet);
    listed.items
}

/// Returns the owner of the session of the tests.
async fn owner(client: &DaemonConnection) -> Option<String> {
    let sessions = client.call(ListSessionsRequest::default()).await.unwrap();
    sessions.into_iter().find(|session| session.name == SESSION).and_then(|session| session.node)
}

async fn wait_for_owner(client: &DaemonConnection, expected: &str) {
    let wait = async {
        while owner(client).await.as_deref() != Some(expected) {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, wait).await.expect("the session has this owner");
}

fn drain(node: &str, draining: bool) -> DrainNodeRequest {
    DrainNodeRequest { node: node.to_owned(), draining }
}

fn move_to(session: &str, node: &str) -> MoveSessionRequest {
    MoveSessionRequest { session: session.to_owned(), node: node.to_owned() }
}

#[tokio::test]
async fn each_node_lists_all() {
    let fleet = TestFleet::start().await;
    for (daemon, own) in [(&fleet.one, "one"), (&fleet.two, "two")] {
        let nodes = list_nodes(&daemon.client("cook").await).await;
        assert_eq!(nodes.iter().map(|node| &*node.name).collect::<Vec<_>>(), ["one", "two"]);
        for node in &nodes {
            assert_eq!(node.state, "running");
            assert_eq!(node.own, node.name == own);
            assert!(node.lease_remaining_ms > 0);
            assert!(!node.clock_skew_warning && !node.host.is_empty());
            assert_eq!(node.version, env!("CARGO_PKG_VERSION"));
        }
        let is_gpu = |node: &NodeBody| node.labels.iter().any(|label| label == "gpu");
        assert_eq!((is_gpu(&nodes[0]), nodes[0].capacity), (true, Some(7)));
        assert_eq!((is_gpu(&nodes[1]), nodes[1].capacity), (false, None));
    }
}

#[tokio::test]
async fn a_session_moves_and_lists_show_its_owner() {
    let fleet = TestFleet::start().await;
    let session = fleet.one.runtime.session(SESSION).await.unwrap();
    session.spawn(ECHO.with(())).await.unwrap();
    let operator = fleet.two.operator().await;
    assert_eq!(owner(&operator).await.as_deref(), Some("one"));
    assert_eq!(list_nodes(&operator).await[0].owned_sessions, 1);
    operator.call(move_to(SESSION, "two")).await.unwrap();
    wait_for_owner(&operator, "two").await;
    let moved = operator.call(move_to(SESSION, "two")).await.unwrap();
    assert_eq!(moved.owner.as_deref(), Some("two"));
}

#[tokio::test]
async fn a_session_moves_to_a_node_with_its_labels() {
    let fleet = TestFleet::start().await;
    let session = fleet.two.runtime.session(SESSION).await.unwrap();
    session.spawn(ECHO.with(())).await.unwrap();
    let operator = fleet.two.operator().await;
    let require = async |labels: &[&str]| {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let request = RequireLabelsRequest { session: SESSION.to_owned(), labels };
        operator.call(request).await
    };
    let nobody = require(&["gpu", "eu"]).await.unwrap();
    assert!(nobody.unsatisfied, "{nobody:?}");
    assert_eq!((nobody.owner.as_deref(), nobody.next_owner), (Some("two"), None));
    let moved = require(&["gpu"]).await.unwrap();
    assert_eq!((moved.next_owner.as_deref(), moved.unsatisfied), (Some("one"), false));
    wait_for_owner(&operator, "one").await;
    let listed = operator.call(ListSessionsRequest::default()).await.unwrap();
    assert_eq!(listed[0].required_labels, ["gpu"]);
    let refused = expect_refusal(require(&["two words"]).await, RefusalKind::Invalid);
    assert!(refused.message.contains("is not a label"), "{refused}");
    let none = require(&[]).await.unwrap();
    assert_eq!((none.owner.as_deref(), none.next_owner), (Some("one"), None));
    let client = fleet.one.client("cook").await;
    let request = RequireLabelsRequest { session: SESSION.to_owned(), labels: Vec::new() };
    expect_refusal(client.call(request).await, RefusalKind::Forbidden);
}

#[tokio::test]
async fn no_session_moves_to_a_draining_node() {
    let fleet = TestFleet::start().await;
    let session = fleet.two.runtime.session(SESSION).await.unwrap();
    session.spawn(ECHO.with(())).await.unwrap();
    let operator = fleet.two.operator().await;
    let drained = operator.call(drain("one", true)).await.unwrap();
    assert_eq!((&*drained.name, &*drained.state), ("one", "draining"));
    let moved = operator.call(move_to(SESSION, "one")).await;
    let refusal = expect_refusal(moved, RefusalKind::Conflict);
    assert!(refusal.message.contains("is draining"), "{refusal}");
    assert_eq!(owner(&operator).await.as_deref(), Some("two"));
    assert_eq!(operator.call(drain("one", false)).await.unwrap().state, "running");
    operator.call(move_to(SESSION, "one")).await.unwrap();
    wait_for_owner(&operator, "one").await;
}

#[tokio::test]
async fn unknown_names_and_other_callers_are_refused() {
    let fleet = TestFleet::start().await;
    fleet.one.runtime.session(SESSION).await.unwrap();
    let operator = fleet.one.operator().await;
    expect_refusal(operator.call(drain("three", true)).await, RefusalKind::NotFound);
    expect_refusal(operator.call(move_to(SESSION, "three")).await, RefusalKind::NotFound);
    let refusal =
        expect_refusal(operator.call(move_to("cellar", "two")).await, RefusalKind::NotFound);
    assert!(refusal.message.contains("cellar"), "{refusal}");
    let client = fleet.one.client("cook").await;
    expect_refusal(client.call(drain("one", true)).await, RefusalKind::Forbidden);
    expect_refusal(client.call(move_to(SESSION, "two")).await, RefusalKind::Forbidden);
    assert!(list_nodes(&operator).await.iter().all(|node| node.state == "running"));
}

#[tokio::test]
async fn a_daemon_without_a_fleet_says_so() {
    let daemon = TestDaemon::start(|builder| builder).await;
    daemon.runtime.session(SESSION).await.unwrap();
    let operator = daemon.operator().await;
    let listed = operator.call(ListNodesRequest {}).await.unwrap();
    assert!(!listed.fleet && listed.items.is_empty());
    assert_eq!(owner(&operator).await, None);
    for refused in [
        operator.call(drain("one", true)).await.map(|_| ()),
        operator.call(move_to(SESSION, "one")).await.map(|_| ()),
    ] {
        let refusal = expect_refusal(refused, RefusalKind::Invalid);
        assert!(refusal.message.contains("no node of a fleet"), "{refusal}");
    }
}
