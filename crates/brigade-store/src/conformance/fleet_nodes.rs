//! A node of a fleet, as the checks use it.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::command::{Caller, Command, SpawnCommand};
use brigade_model::ids::{Lane, SessionId, Time};
use brigade_model::limits::Limits;
use uuid::Uuid;

use super::FleetHarness;
use super::writer::{SessionWriter, job, session_id};
use crate::batch::{Batch, SessionBatch};
use crate::error::StoreError;
use crate::fleet::{
    CallAnswer, CallId, CallPlace, CallTarget, ClaimedSession, Fleet, JoinResult, NewCall, NewNode,
    NodeId, NodeRow, OpenCall, OpenCallQuery, SessionClaim, SessionRelease,
};
use crate::store::Store;

/// A lease that does not end during a check.
pub(super) const LONG_LEASE: Duration = Duration::from_secs(3_600);

/// A lease that a check lets end. Nothing else depends on it, since an expired node goes on until it is
/// closed.
pub(super) const SHORT_LEASE: Duration = Duration::from_millis(200);

/// A node with one lane.
#[derive(Debug)]
pub(super) struct FleetNode {
    pub(super) store: Arc<dyn Store>,
    pub(super) id: NodeId,
    pub(super) lane: Lane,
    /// The lanes after the first one.
    pub(super) other_lanes: Vec<Lane>,
}

pub(super) fn new_node(name: &str) -> NewNode {
    NewNode {
        name: name.to_owned(),
        host: "kitchen".to_owned(),
        labels: Vec::new(),
        capacity: None,
        version: "1.2.3".to_owned(),
        lease: LONG_LEASE,
        lanes: 1,
    }
}

impl FleetNode {
    pub(super) async fn join(store: &Arc<dyn Store>, name: &str) -> Self {
        Self::join_with(store, &new_node(name)).await
    }

    pub(super) async fn join_briefly(store: &Arc<dyn Store>, name: &str) -> Self {
        Self::join_with(store, &NewNode { lease: SHORT_LEASE, ..new_node(name) }).await
    }

    pub(super) async fn join_with(store: &Arc<dyn Store>, node: &NewNode) -> Self {
        let joined = fleet_of(store).join(node).await.expect("a join");
        let JoinResult::Joined(joined) = joined else { panic!("it is {joined:?}") };
        let (lane, other_lanes) = joined.lanes.split_first().expect("a node has a lane");
        Self {
            store: store.clone(),
            id: joined.node,
            lane: *lane,
            other_lanes: other_lanes.to_vec(),
        }
    }

    pub(super) fn fleet(&self) -> &dyn Fleet {
        fleet_of(&self.store)
    }

    /// Opens a session in the lane of the node.
    pub(super) async fn open_session(&self, number: u128) -> SessionWriter {
        let (mut writer, part) = SessionWriter::begin(&self.store, number, Limits::default());
        writer.lane = self.lane;
        let batch = Batch { lane: self.lane, sessions: vec![part], ..Batch::default() };
        self.store.commit(&batch).await.expect("the session is committed");
        writer
    }

    /// Opens a session that nobody owns.
    pub(super) async fn open_released(
        &self,
        number: u128,
        next_due: Option<u64>,
        next_owner: Option<NodeId>,
    ) {
        let writer = self.open_session(number).await;
        let release =
            SessionRelease { next_due: next_due.map(Time), next_owner, ..release_of(&writer) };
        assert!(self.fleet().release(&release).await.expect("a release"));
    }

    pub(super) async fn claim(&self, now: u64, limit: usize) -> Vec<ClaimedSession> {
        self.claim_without(Vec::new(), now, limit).await
    }

    pub(super) async fn claim_without(
        &self,
        skipped: Vec<SessionId>,
        now: u64,
        limit: usize,
    ) -> Vec<ClaimedSession> {
        let now = Time(now);
        let claim = SessionClaim { node: self.id, lane: self.lane, now, limit, skipped };
        self.fleet().claim(&claim).await.expect("a claim")
    }

    /// Claims sessions and returns their numbers.
    pub(super) async fn claim_numbers(&self, now: u64, limit: usize) -> Vec<u128> {
        let claimed = self.claim(now, limit).await;
        claimed.iter().map(|session| session.id.as_uuid().as_u128()).collect()
    }

    /// Asks the owner of a session. The number is also the request.
    pub(super) async fn ask(&self, number: u8, target: CallTarget) -> CallId {
        let call = self.new_call(number, target);
        assert!(self.fleet().ask(&call).await.expect("a call"));
        call.id
    }

    pub(super) async fn ask_session(&self, number: u8, session: u128) -> CallId {
        self.ask(number, CallTarget::Session(session_id(session))).await
    }

    pub(super) fn new_call(&self, number: u8, target: CallTarget) -> NewCall {
        NewCall { id: call_id(number), target, asked_by: self.id, request: vec![number] }
    }

    /// Returns the requests of the node's open calls.
    pub(super) async fn open_requests(&self) -> Vec<u8> {
        self.open_calls(None, 100).await.iter().map(|call| call.request[0]).collect()
    }

    /// Returns a page of the node's open calls.
    pub(super) async fn open_calls(&self, after: Option<CallPlace>, limit: usize) -> Vec<OpenCall> {
        let query = OpenCallQuery { node: self.id, after, limit };
        self.fleet().open_calls(&query).await.expect("open calls")
    }

    /// Returns the replies to calls, with `None` for those that were removed.
    pub(super) async fn replies(&self, calls: &[CallId]) -> Vec<(CallId, Option<Vec<u8>>)> {
        let mut found = self.fleet().replies(calls).await.expect("replies");
        found.sort_by_key(|result| result.id);
        found.into_iter().map(|result| (result.id, result.reply)).collect()
    }

    /// Returns the node that owns a session.
    pub(super) async fn owner_of(&self, number: u128) -> Option<NodeId> {
        let owners = self.fleet().owners(&[session_id(number), session_id(9_999)]).await;
        let owners = owners.expect("owners");
        assert!(owners.iter().all(|owner| owner.session == session_id(number)));
        owners.first().map(|owner| owner.node)
    }

    pub(super) async fn row(&self) -> NodeRow {
        let nodes = self.fleet().nodes().await.expect("nodes");
        nodes.into_iter().find(|row| row.id == self.id).expect("the node is there")
    }

    /// Lets the lease of the node end, and closes it from another one.
    pub(super) async fn expire(&self, harness: &dyn FleetHarness, other: &Self) -> NodeRow {
        for _ in 0..1_000 {
            let closed = other.fleet().close_expired().await.expect("a close");
            if let Some(row) = closed.into_iter().find(|row| row.id == self.id) {
                return row;
            }
            harness.wait(Duration::from_millis(20)).await;
        }
        panic!("{:?} is not closed", self.id);
    }
}

pub(super) fn fleet_of(store: &Arc<dyn Store>) -> &dyn Fleet {
    store.fleet().expect("nodes share the store")
}

pub(super) fn call_id(number: u8) -> CallId {
    CallId(Uuid::from_u128(number.into()))
}

pub(super) fn release_of(writer: &SessionWriter) -> SessionRelease {
    let row = writer.tree.row();
    SessionRelease {
        lane: writer.lane,
        id: row.id,
        epoch: row.epoch,
        seq: row.seq,
        next_due: None,
        next_owner: None,
    }
}

pub(super) async fn spawn(writer: &mut SessionWriter) -> SessionBatch {
    let spawn = SpawnCommand { caller: Caller::Operator, spec: Arc::new(job()), call: None };
    writer.decide(&Command::Spawn(spawn)).await.1
}

pub(super) fn answered(lane: Lane, sessions: Vec<SessionBatch>, answers: &[(CallId, u8)]) -> Batch {
    let answer =
        |(id, reply): &(CallId, u8)| CallAnswer { id: *id, reply: vec![*reply], must_exist: false };
    Batch { lane, sessions, answers: answers.iter().map(answer).collect() }
}

/// Checks that a batch is refused and changes neither sessions nor events.
pub(super) async fn assert_fenced(store: &Arc<dyn Store>, batch: &Batch) {
    let before = (
        store.sessions().await.expect("sessions are read"),
        store.cursor().await.expect("a cursor"),
    );
    let result = store.commit(batch).await;
    assert!(matches!(result, Err(StoreError::Fenced(_))), "{result:?}");
    let after = (
        store.sessions().await.expect("sessions are read"),
        store.cursor().await.expect("a cursor"),
    );
    assert_eq!(after, before);
}
