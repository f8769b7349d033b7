//! Checks of calls between the nodes that share a store.

use std::sync::Arc;

use brigade_model::command::{Caller, CloseCommand, Command};
use brigade_model::ids::Millis;

use super::FleetHarness;
use super::fleet_nodes::{
    FleetNode, answered, assert_fenced, call_id, fleet_of, release_of, spawn,
};
use super::writer::{all_events, session_id};
use crate::batch::Batch;
use crate::error::StoreError;
use crate::fleet::{CallAnswer, CallId, CallResult, CallTarget, NewCall, NodeId};
use crate::store::{Retention, Store};

/// Checks that the owner of a session answers a call once, in the commit of its events.
pub async fn a_call_is_answered_once_with_its_events(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let node = FleetNode::join(&store, "a").await;
    let asker = FleetNode::join(&harness.another_handle(&store).await, "b").await;
    let mut writer = node.open_session(1).await;
    let call = asker.ask_session(1, 1).await;
    let changed = NewCall { request: vec![9], ..asker.new_call(1, CallTarget::Node(node.id)) };
    assert!(asker.fleet().ask(&changed).await.expect("a call"));
    let open = node.open_calls(None, 10).await;
    assert_eq!(open.len(), 1);
    assert_eq!((open[0].id, open[0].target), (call, CallTarget::Session(session_id(1))));
    assert_eq!(open[0].request, [1]);
    assert!(asker.open_requests().await.is_empty());
    assert!(asker.replies(&[call]).await.is_empty());

    let part = spawn(&mut writer).await;
    store.commit(&answered(node.lane, vec![part], &[(call, 7)])).await.expect("a commit");
    assert_eq!(asker.replies(&[call]).await, [(call, Some(vec![7]))]);
    assert!(node.open_requests().await.is_empty());
    let part = spawn(&mut writer).await;
    assert_closed(&store, &answered(node.lane, vec![part.clone()], &[(call, 8)]), &[call]).await;
    let two = [(call_id(2), 1), (call, 8)];
    asker.ask_session(2, 1).await;
    assert_closed(&store, &answered(node.lane, vec![part.clone()], &two), &[call]).await;
    assert_eq!(asker.replies(&[call_id(2)]).await, []);
    assert_eq!(asker.replies(&[call]).await, [(call, Some(vec![7]))]);
    // An answer to a removed call is ignored.
    asker.fleet().remove_calls(&[call, call_id(2)]).await.expect("a removal");
    assert_eq!(asker.replies(&[call]).await, [(call, None)]);
    let mut batch = answered(node.lane, vec![part], &two);
    for needed in [&[1][..], &[0, 1]] {
        needed.iter().for_each(|at| batch.answers[*at].must_exist = true);
        let removed: Vec<CallId> = needed.iter().map(|at| batch.answers[*at].id).collect();
        assert_closed(&store, &batch, &removed).await;
    }
    batch.answers.iter_mut().for_each(|answer| answer.must_exist = false);
    store.commit(&batch).await.expect("a commit");
    assert_eq!(asker.replies(&[call]).await, [(call, None)]);
    assert_eq!(all_events(&*store, None).await.expect("events").len(), 3);
}

/// Checks that a batch is refused because these calls have a reply or were removed, and changes nothing.
async fn assert_closed(store: &Arc<dyn Store>, batch: &Batch, expected: &[CallId]) {
    let before = store.sessions().await.expect("sessions are read");
    match store.commit(batch).await {
        Err(StoreError::CallClosed { calls }) => assert_eq!(calls, expected),
        other => panic!("closed calls were answered: {other:?}"),
    }
    assert_eq!(store.sessions().await.expect("sessions are read"), before);
}

/// Checks that a batch of answers alone is a commit of its lane.
pub async fn answers_without_events_are_a_commit(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let node = FleetNode::join(&store, "a").await;
    let asker = FleetNode::join(&store, "b").await;
    node.open_session(1).await;
    let calls = [asker.ask_session(1, 1).await, asker.ask_session(2, 1).await];
    let cursor = store.cursor().await.expect("a cursor");
    let batch = answered(node.lane, Vec::new(), &[(calls[0], 7)]);
    assert!(!batch.is_empty());
    let position = store.commit(&batch).await.expect("a commit");
    assert_eq!((position.lane, position.no), (node.lane, 2));
    assert_eq!(store.cursor().await.expect("a cursor"), cursor);
    assert_eq!(asker.replies(&calls).await, [(calls[0], Some(vec![7]))]);
    assert_closed(&store, &batch, &calls[..1]).await;
    node.fleet().close_node(node.id).await.expect("a leave");
    assert_fenced(&store, &answered(node.lane, Vec::new(), &[(calls[1], 7)])).await;
    assert_eq!(asker.replies(&calls).await, [(calls[0], Some(vec![7]))]);
}

/// Checks that calls follow the session to its next owner, the oldest first.
pub async fn calls_follow_the_session(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let node = FleetNode::join_briefly(&store, "a").await;
    let asker = FleetNode::join(&store, "b").await;
    let next = FleetNode::join(&store, "c").await;
    node.open_session(1).await;
    for number in [5, 3, 4] {
        asker.ask_session(number, 1).await;
    }
    asker.ask(2, CallTarget::Node(node.id)).await;
    assert_eq!(node.open_requests().await, [5, 3, 4, 2]);
    let first = node.open_calls(None, 2).await;
    assert_eq!(first.iter().map(|call| call.id).collect::<Vec<_>>(), [call_id(5), call_id(3)]);
    // The next page begins at the same place when the last call is answered meanwhile.
    let answers = answered(node.lane, Vec::new(), &[(call_id(3), 7)]);
    store.commit(&answers).await.expect("a commit");
    let second = node.open_calls(Some(first[1].place), 1).await;
    assert_eq!(second.iter().map(|call| call.id).collect::<Vec<_>>(), [call_id(4)]);
    let last = node.open_calls(Some(second[0].place), 9).await;
    assert_eq!(last.iter().map(|call| call.id).collect::<Vec<_>>(), [call_id(2)]);
    assert!(node.open_calls(Some(last[0].place), 9).await.is_empty());
    node.expire(harness, &asker).await;
    assert!(next.open_requests().await.is_empty());
    assert_eq!(next.claim_numbers(0, 10).await, [1]);
    assert_eq!(next.open_requests().await, [5, 4]);
    // Nobody can answer a call for a closed node.
    assert_eq!(asker.replies(&[call_id(2), call_id(4)]).await, [(call_id(2), None)]);
}

/// Checks that a call finds an owner for a closed session, which needs none otherwise: one that nobody owns,
/// and one of a closed lane in which earlier claims have found nothing.
pub async fn a_closed_session_is_claimed_for_its_call(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let dead = FleetNode::join_briefly(&store, "dead").await;
    let node = FleetNode::join(&store, "a").await;
    for number in [1, 2] {
        let mut writer = dead.open_session(number).await;
        let close = CloseCommand { caller: Caller::Operator, reason: None };
        writer.submit(Command::Close(close)).await;
        if number == 2 {
            let release = release_of(&writer);
            assert!(dead.fleet().release(&release).await.expect("a release"));
        }
    }
    dead.expire(harness, &node).await;
    assert!(node.claim(0, 10).await.is_empty());
    assert!(node.claim(0, 10).await.is_empty());
    let calls = [node.ask_session(1, 1).await, node.ask_session(2, 2).await];
    let mut claimed = node.claim_numbers(0, 10).await;
    claimed.sort_unstable();
    assert_eq!(claimed, [1, 2]);
    assert_eq!(node.open_requests().await, [1, 2]);
    let answers = [(calls[0], 7), (calls[1], 8)];
    store.commit(&answered(node.lane, Vec::new(), &answers)).await.expect("a commit");
    assert_eq!(node.replies(&calls).await, answers.map(|(call, reply)| (call, Some(vec![reply]))));
}

/// Checks calls for nodes: the first reply stays, also after the end of the node.
pub async fn a_call_for_a_node_has_one_reply(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let node = FleetNode::join(&store, "a").await;
    let asker = FleetNode::join(&store, "b").await;
    let call = asker.ask(1, CallTarget::Node(node.id)).await;
    assert_eq!(node.open_requests().await, [1]);
    for reply in [7, 8] {
        let answer = CallAnswer { id: call, reply: vec![reply], must_exist: false };
        node.fleet().answer(&answer).await.expect("an answer");
    }
    let unknown = CallAnswer { id: call_id(99), reply: vec![1], must_exist: false };
    node.fleet().answer(&unknown).await.expect("an answer");
    assert!(node.open_requests().await.is_empty());
    node.fleet().close_node(node.id).await.expect("a leave");
    let expected = [(call, Some(vec![7])), (call_id(99), None)];
    assert_eq!(asker.replies(&[call, call_id(99)]).await, expected);
    let removed = asker.fleet().remove_calls(&[call, call_id(99)]).await.expect("a removal");
    assert_eq!(removed, [CallResult { id: call, reply: Some(vec![7]) }]);
    assert_eq!(asker.replies(&[call]).await, [(call, None)]);
}

/// Checks that a call needs a session or an open node, and an open asker.
pub async fn a_call_needs_both_sides(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let node = FleetNode::join(&store, "a").await;
    let asker = FleetNode::join(&store, "b").await;
    node.open_session(1).await;
    let targets = [CallTarget::Session(session_id(2)), CallTarget::Node(NodeId(9_999))];
    for target in targets {
        let stored = fleet_of(&store).ask(&asker.new_call(1, target)).await;
        assert!(!stored.expect("a call"), "{target:?}");
    }
    let waiting = asker.ask_session(2, 1).await;
    let answered_call = asker.ask(3, CallTarget::Node(node.id)).await;
    let answer = CallAnswer { id: answered_call, reply: vec![1], must_exist: false };
    node.fleet().answer(&answer).await.expect("an answer");
    asker.fleet().close_node(asker.id).await.expect("a leave");
    let gone = [(waiting, None), (answered_call, None)];
    assert_eq!(node.replies(&[waiting, answered_call]).await, gone);
    let late = asker.ask_session(4, 1).await;
    assert_eq!(node.replies(&[late]).await, [(late, None)]);
    assert!(node.open_requests().await.is_empty());
    let closed = node.new_call(5, CallTarget::Node(asker.id));
    assert!(!node.fleet().ask(&closed).await.expect("a call"));
}

/// Checks that open calls go with their session.
pub async fn a_removed_session_has_no_calls(harness: &dyn FleetHarness) {
    let store = harness.empty().await;
    let node = FleetNode::join(&store, "a").await;
    let mut writer = node.open_session(1).await;
    let call = node.ask_session(1, 1).await;
    let close = CloseCommand { caller: Caller::Operator, reason: None };
    writer.submit(Command::Close(close)).await;
    assert!(node.replies(&[call]).await.is_empty());
    let retention = Retention { ended: Millis(0), events: Millis(u64::MAX) };
    let pruned = store.prune(&retention, writer.now.after(Millis(1))).await.expect("a prune");
    assert_eq!(pruned.sessions, 1);
    assert_eq!(node.replies(&[call]).await, [(call, None)]);
}
