//! Checks of nodes that share a store: leases, claims, releases and hints.

use std::collections::BTreeSet;
use std::time::Duration;

use brigade_model::command::{Caller, CloseCommand, Command};
use brigade_model::ids::{Epoch, Lane, Seq, Time};
use brigade_model::limits::Limits;
use brigade_model::task_tree::SessionRow;
use tokio::task::JoinSet;

use super::FleetHarness;
use super::fleet_nodes::{
    FleetNode, LONG_LEASE, assert_fenced, fleet_of, new_node, release_of, spawn,
};
use super::writer::{EPOCH, SessionWriter, job, session_id};
use crate::batch::Batch;
use crate::error::StoreError;
use crate::fleet::{
    JoinResult, NEXT_OWNER_TIME, NewNode, NodeId, NodeLoad, RequiredLabels, SessionRelease,
};
use crate::store::AcquireResult;

/// Checks that one open node has a name, also if two join at once, and that it is free after its end.
pub async fn an_open_node_has_its_name_alone(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let other = harness.another_handle(&store).await;
    let new = NewNode { labels: vec!["gpu".into()], capacity: Some(7), lanes: 3, ..new_node("a") };
    let both = tokio::join!(fleet_of(&store).join(&new), fleet_of(&other).join(&new));
    let (joined, taken) = match (both.0.expect("a join"), both.1.expect("a join")) {
        (JoinResult::Joined(joined), JoinResult::NameTaken(taken))
        | (JoinResult::NameTaken(taken), JoinResult::Joined(joined)) => (joined, taken),
        both => panic!("one of them joins: {both:?}"),
    };
    assert_eq!(joined.lanes.iter().collect::<BTreeSet<_>>().len(), 3);
    assert!(!joined.renewal.draining);
    assert_eq!((taken.id, taken.name.as_str(), taken.host.as_str()), (joined.node, "a", "kitchen"));
    assert_eq!((taken.labels, taken.capacity), (new.labels.clone(), new.capacity));
    assert_eq!((taken.version.as_str(), taken.open, taken.draining), ("1.2.3", true, false));
    assert_eq!((taken.load, taken.owned_sessions), (NodeLoad::default(), 0));
    let another = FleetNode::join(&other, "b").await;
    fleet_of(&store).close_node(joined.node).await.expect("a leave");
    let again = FleetNode::join_with(&store, &new).await;
    assert_ne!(again.id, joined.node);
    let nodes = fleet_of(&store).nodes().await.expect("nodes");
    let nodes: Vec<(NodeId, bool)> = nodes.iter().map(|row| (row.id, row.open)).collect();
    assert_eq!(nodes, [(joined.node, false), (another.id, true), (again.id, true)]);
}

/// Checks that a renewal extends the lease, stores the load and returns whether the node drains.
pub async fn a_renewal_extends_the_lease(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let node = FleetNode::join(&store, "a").await;
    let before = node.row().await;
    let lease = before.lease_until.since(before.joined_at);
    assert!(lease.0.abs_diff(LONG_LEASE.as_millis() as u64) < 60_000, "{lease:?}");
    harness.wait(Duration::from_millis(20)).await;
    assert!(node.fleet().set_draining(node.id, true).await.expect("a change"));
    let load = NodeLoad { sessions: 3, running: 2, skew_ms: -5 };
    let renewed = node.fleet().renew(node.id, &load).await.expect("a renewal").expect("it is open");
    assert!(renewed.draining);
    assert!(renewed.now > before.now);
    let after = node.row().await;
    assert!(after.lease_until > before.lease_until);
    assert_eq!((after.load, after.draining), (load, true));
    assert!(node.fleet().set_draining(node.id, false).await.expect("a change"));
    let renewed = node.fleet().renew(node.id, &load).await.expect("a renewal").expect("it is open");
    assert!(!renewed.draining);
    assert!(node.fleet().close_expired().await.expect("a close").is_empty());
}

/// Checks that a closed node stays closed.
pub async fn a_closed_node_is_not_renewed(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let node = FleetNode::join_briefly(&store, "a").await;
    let other = FleetNode::join(&store, "b").await;
    let closed = node.expire(harness, &other).await;
    assert_eq!((closed.name.as_str(), closed.open), ("a", false));
    let load = NodeLoad::default();
    assert_eq!(node.fleet().renew(node.id, &load).await.expect("a renewal"), None);
    assert!(!node.fleet().set_draining(node.id, true).await.expect("a change"));
    assert!(other.fleet().close_expired().await.expect("a close").is_empty());
    assert_eq!(other.fleet().renew(NodeId(9_999), &load).await.expect("a renewal"), None);
    assert!(!node.row().await.open);
    assert!(other.row().await.open);
}

/// Checks that an open lane protects its sessions, and that a closed one writes nothing.
pub async fn an_expired_node_is_fenced(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let node = FleetNode::join_briefly(&store, "a").await;
    let other = FleetNode::join(&store, "b").await;
    let mut writer = node.open_session(1).await;
    let row = writer.tree.row().clone();
    let call = node.ask_session(1, 1).await;
    assert_eq!(other.owner_of(1).await, Some(node.id));
    assert_eq!(node.row().await.owned_sessions, 1);
    let refused = store.acquire(other.lane, &row).await.expect("it is asked");
    assert_eq!(refused, AcquireResult::Owned);
    assert!(other.claim(9_999, 10).await.is_empty());
    node.expire(harness, &other).await;

    assert_eq!(other.owner_of(1).await, None);
    assert_eq!(other.replies(&[call]).await, [(call, None)]);
    let part = spawn(&mut writer).await;
    let batch = Batch { lane: node.lane, sessions: vec![part], ..Batch::default() };
    assert_fenced(&store, &batch).await;
    assert!(!node.fleet().release(&release_of(&writer)).await.expect("a release"));
    let refused = store.acquire(node.lane, &row).await;
    assert!(matches!(refused, Err(StoreError::Fenced(_))), "{refused:?}");
    let acquired = store.acquire(other.lane, &row).await.expect("it is asked");
    assert!(matches!(acquired, AcquireResult::Acquired(_)), "{acquired:?}");
    assert_eq!(other.owner_of(1).await, Some(other.id));
}

/// Checks that a lane acquires a session of another lane of its node, whose writer is then refused.
pub async fn the_lanes_of_a_node_take_sessions_of_each_other(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let node = FleetNode::join_with(&store, &NewNode { lanes: 2, ..new_node("a") }).await;
    let other = FleetNode::join(&store, "b").await;
    let mut writer = node.open_session(1).await;
    let row = writer.tree.row().clone();
    let refused = store.acquire(other.lane, &row).await.expect("it is asked");
    assert_eq!(refused, AcquireResult::Owned);
    let lane = node.other_lanes[0];
    let acquired = store.acquire(lane, &row).await.expect("it is asked");
    assert!(matches!(acquired, AcquireResult::Acquired(_)), "{acquired:?}");
    assert_eq!(other.owner_of(1).await, Some(node.id));
    assert_eq!(node.fleet().owned_sessions(node.lane).await.expect("sessions"), []);
    assert_eq!(node.fleet().owned_sessions(lane).await.expect("sessions"), [writer.id()]);
    let refused = store.acquire(node.lane, &row).await.expect("it is asked");
    assert_eq!(refused, AcquireResult::Changed, "the epoch is another one");
    let part = spawn(&mut writer).await;
    let batch = Batch { lane: node.lane, sessions: vec![part], ..Batch::default() };
    assert_fenced(&store, &batch).await;
}

/// Checks the order of claims, their limit, and what a claim changes.
pub async fn claims_are_in_the_order_of_their_reasons(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let dead = FleetNode::join_briefly(&store, "dead").await;
    let node = FleetNode::join(&store, "a").await;
    let other = FleetNode::join(&store, "b").await;
    dead.open_session(1).await;
    node.open_released(2, Some(500), None).await;
    node.open_released(3, Some(400), None).await;
    node.open_released(4, None, None).await;
    node.ask_session(1, 4).await;
    node.open_released(5, Some(9_000), None).await;
    node.open_released(6, None, None).await;
    node.open_session(7).await;
    node.ask_session(2, 7).await;
    let mut closed = node.open_session(8).await;
    let close = CloseCommand { caller: Caller::Operator, reason: None };
    closed.submit(Command::Close(close)).await;
    let release = SessionRelease { next_due: Some(Time(1)), ..release_of(&closed) };
    assert!(node.fleet().release(&release).await.expect("a release"));
    dead.expire(harness, &node).await;

    assert!(dead.claim(600, 10).await.is_empty(), "a closed lane claims nothing");
    assert!(other.claim(600, 0).await.is_empty());
    assert_eq!(other.claim_numbers(600, 2).await, [4, 3]);
    let claimed = other.claim(600, 10).await;
    let ids: Vec<_> = claimed.iter().map(|session| session.id).collect();
    assert_eq!(ids, [session_id(2), session_id(1)]);
    assert!(claimed.iter().all(|session| session.epoch == EPOCH.next()));
    assert_eq!(claimed[1].last.lane, dead.lane);
    assert!(other.claim(600, 10).await.is_empty());
    let mut owned = other.fleet().owned_sessions(other.lane).await.expect("owned sessions");
    owned.sort();
    assert_eq!(owned, [1, 2, 3, 4].map(session_id));
    assert_eq!(other.row().await.owned_sessions, 4);
    assert_eq!(node.fleet().owned_sessions(node.lane).await.expect("one"), [session_id(7)]);

    // The claiming lane is the writer from now on.
    let loaded = store.load(session_id(1)).await.expect("a load").expect("the session");
    assert_eq!(loaded.row.epoch, EPOCH.next());
    let (mut writer, _) = SessionWriter::begin(&store, 1, Limits::default());
    writer.lane = other.lane;
    writer.tree = loaded.into_tree();
    writer.spawn(Caller::Operator, job()).await;
    assert_eq!(other.claim_numbers(9_000, 10).await, [5]);
}

/// Claims from two nodes at once. No session gets two owners, and none is left.
pub async fn concurrent_claims_share_no_session(harness: &dyn FleetHarness) {
    const SESSIONS: u128 = 300;
    let store = harness.empty().await;
    let dead = FleetNode::join_briefly(&store, "dead").await;
    let mut opened = Batch { lane: dead.lane, ..Batch::default() };
    for number in 1..=SESSIONS {
        opened.sessions.push(SessionWriter::begin(&store, number, Limits::default()).1);
    }
    store.commit(&opened).await.expect("the sessions are committed");
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(FleetNode::join(&harness.another_handle(&store).await, name).await);
    }
    dead.expire(harness, &nodes[0]).await;
    let mut claims = JoinSet::new();
    for node in nodes {
        claims.spawn(async move {
            let mut numbers = Vec::new();
            loop {
                let some = node.claim_numbers(0, 7).await;
                if some.is_empty() {
                    return numbers;
                }
                numbers.extend(some);
                tokio::task::yield_now().await;
            }
        });
    }
    let mut all = Vec::new();
    while let Some(claimed) = claims.join_next().await {
        all.extend(claimed.expect("a claim does not panic"));
    }
    all.sort_unstable();
    assert_eq!(all, (1..=SESSIONS).collect::<Vec<_>>());
}

/// Checks that a node claims only sessions whose labels it has, from each source.
pub async fn a_claim_needs_the_labels_of_the_session(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let dead = FleetNode::join_briefly(&store, "dead").await;
    let plain = FleetNode::join(&store, "plain").await;
    let labels = vec!["gpu".to_owned(), "eu".to_owned(), "big".to_owned()];
    let labelled = NewNode { labels, ..new_node("labelled") };
    let labelled = FleetNode::join_with(&store, &labelled).await;
    dead.open_session(1).await;
    plain.open_released(2, Some(100), None).await;
    plain.open_released(3, None, None).await;
    plain.ask_session(1, 3).await;
    plain.open_released(4, None, Some(plain.id)).await;
    let needed = ["gpu".to_owned(), "eu".to_owned()];
    for number in 1..=4 {
        let set = plain.fleet().require_labels(session_id(number), &needed).await;
        assert!(set.expect("a change"));
    }
    let unknown = plain.fleet().require_labels(session_id(99), &needed).await;
    assert!(!unknown.expect("a change"));
    dead.expire(harness, &plain).await;
    assert!(plain.claim(200, 10).await.is_empty());
    let set = plain.fleet().require_labels(session_id(2), &[]).await;
    assert!(set.expect("a change"));
    assert_eq!(plain.claim_numbers(200, 10).await, [2]);
    assert_eq!(labelled.claim_numbers(200, 10).await, [3, 1]);
    let set = plain.fleet().require_labels(session_id(4), &[]).await;
    assert!(set.expect("a change"));
    assert_eq!(plain.claim_numbers(200, 10).await, [4]);
}

/// Checks that a node acquires only sessions whose labels it has, and keeps those that it owns.
pub async fn an_acquisition_needs_the_labels_of_the_session(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let plain = FleetNode::join(&store, "plain").await;
    let labels = vec!["gpu".to_owned()];
    let labelled = FleetNode::join_with(&store, &NewNode { labels, ..new_node("labelled") }).await;
    let owned = plain.open_session(1).await.tree.row().clone();
    plain.open_released(2, None, None).await;
    let released = store.session(session_id(2)).await.expect("a session").expect("it is there");
    let sessions = [session_id(1), session_id(2)];
    let required = plain.fleet().required_labels(&sessions).await.expect("labels");
    assert!(required.is_empty(), "{required:?}");
    for session in sessions {
        let set = plain.fleet().require_labels(session, &["gpu".to_owned()]).await;
        assert!(set.expect("a change"));
    }
    let mut required = plain.fleet().required_labels(&sessions).await.expect("labels");
    required.sort_by_key(|it| it.session);
    let expected = sessions.map(|session| RequiredLabels { session, labels: vec!["gpu".into()] });
    assert_eq!(required, expected);

    let acquire = async |node: &FleetNode, row: &SessionRow| {
        store.acquire(node.lane, row).await.expect("it is asked")
    };
    assert!(matches!(acquire(&plain, &owned).await, AcquireResult::Acquired(_)));
    assert_eq!(acquire(&plain, &released).await, AcquireResult::LabelsMissing);
    assert_eq!(plain.owner_of(2).await, None);
    assert!(matches!(acquire(&labelled, &released).await, AcquireResult::Acquired(_)));
    assert_eq!(plain.owner_of(2).await, Some(labelled.id));
}

/// Checks that a session waits for its next owner while that node is open.
pub async fn a_released_session_waits_for_its_next_owner(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let dead = FleetNode::join_briefly(&store, "dead").await;
    let node = FleetNode::join(&store, "a").await;
    let next = FleetNode::join(&store, "b").await;
    node.open_released(1, None, Some(next.id)).await;
    node.open_released(2, Some(100), Some(next.id)).await;
    node.open_released(3, None, Some(next.id)).await;
    node.ask_session(1, 3).await;
    node.open_released(4, None, Some(dead.id)).await;
    node.open_released(5, Some(100), Some(dead.id)).await;
    assert!(node.claim(200, 10).await.is_empty());
    let claimed = next.claim_numbers(200, 10).await;
    assert_eq!(claimed, [3, 2, 1]);
    dead.expire(harness, &node).await;
    assert_eq!(node.claim_numbers(200, 10).await, [5, 4]);

    // A node that does not claim what waits for it does not keep others from it.
    node.open_released(6, None, Some(next.id)).await;
    node.open_released(7, Some(100), Some(next.id)).await;
    assert!(node.claim(200, 10).await.is_empty());
    harness.wait(NEXT_OWNER_TIME).await;
    let mut claimed = node.claim_numbers(200, 10).await;
    claimed.sort_unstable();
    assert_eq!(claimed, [6, 7]);
}

/// Checks that a node gets no session that it skips, and can release one without reading it.
pub async fn a_skipped_session_is_claimed_by_another_node(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let dead = FleetNode::join_briefly(&store, "dead").await;
    let node = FleetNode::join(&store, "a").await;
    let other = FleetNode::join(&store, "b").await;
    dead.open_session(1).await;
    node.open_released(2, Some(100), None).await;
    node.open_released(3, None, None).await;
    node.ask_session(1, 3).await;
    node.open_released(4, None, Some(node.id)).await;
    dead.expire(harness, &node).await;
    let all = [1, 2, 3, 4].map(session_id).to_vec();
    assert!(node.claim_without(all, 200, 10).await.is_empty());
    let claimed = node.claim_without(vec![session_id(2), session_id(3)], 200, 10).await;
    for claimed in &claimed {
        let release = SessionRelease {
            lane: node.lane,
            id: claimed.id,
            epoch: claimed.epoch,
            seq: claimed.seq,
            next_due: Some(Time(200)),
            next_owner: None,
        };
        assert!(node.fleet().release(&release).await.expect("a release"));
    }
    let mut claimed = other.claim_numbers(200, 10).await;
    claimed.sort_unstable();
    assert_eq!(claimed, [1, 2, 3, 4]);
}

/// Checks that a release compares lane, epoch and sequence number, and ends the ownership.
pub async fn a_release_compares_the_stored_row(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let node = FleetNode::join(&store, "a").await;
    let other = FleetNode::join(&store, "b").await;
    let mut writer = node.open_session(1).await;
    let right = SessionRelease { next_due: Some(Time(100)), ..release_of(&writer) };
    let wrong = [
        SessionRelease { lane: other.lane, ..right },
        SessionRelease { epoch: Epoch(right.epoch.0 + 1), ..right },
        SessionRelease { seq: Seq(right.seq.0 + 1), ..right },
        SessionRelease { seq: Seq(right.seq.0 - 1), ..right },
        SessionRelease { id: session_id(99), ..right },
        SessionRelease { lane: Lane(9_999), ..right },
    ];
    for wrong in wrong {
        assert!(!node.fleet().release(&wrong).await.expect("a release"), "{wrong:?}");
        assert_eq!(other.owner_of(1).await, Some(node.id));
    }
    assert!(node.fleet().release(&right).await.expect("a release"));
    assert!(!node.fleet().release(&right).await.expect("a release"), "it is done once");
    assert_eq!(other.owner_of(1).await, None);
    let row = writer.tree.row().clone();
    let part = spawn(&mut writer).await;
    let batch = Batch { lane: node.lane, sessions: vec![part], ..Batch::default() };
    assert_fenced(&store, &batch).await;
    // An acquisition ends the wait for the time.
    let acquired = store.acquire(other.lane, &row).await.expect("it is asked");
    let AcquireResult::Acquired(acquired) = acquired else { panic!("it is {acquired:?}") };
    assert!(node.claim(200, 10).await.is_empty());
    let again = SessionRelease { lane: other.lane, epoch: acquired.epoch, ..right };
    let again = SessionRelease { next_due: None, ..again };
    assert!(other.fleet().release(&again).await.expect("a release"));
    assert!(node.claim(200, 10).await.is_empty());
}

/// Checks that a waiting node gets a hint of another one.
pub async fn a_hint_wakes_another_node(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let other = harness.another_handle(&store).await;
    let waiting = fleet_of(&store).next_hint();
    // The wait may begin after the first hints.
    let notifying = async {
        loop {
            fleet_of(&other).notify().await.expect("a hint");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = waiting => {}
        () = notifying => {}
    }
}
