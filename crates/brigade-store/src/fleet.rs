//! The contract between the nodes of a fleet, which share one store.
//!
//! ```text
//! join ──> lanes ── renew ── renew ── ... ── leave
//!            │         (a lease that is over: any node closes the lanes)
//! claim ─────┴──> own sessions ── commit ... ── release
//! ask ──> a call of a session ── answered in the owner's commit ──> replies
//! ```
//!
//! An open lane of a node protects its sessions: nobody else acquires them. A closed lane accepts no
//! commit, so whoever acquires a session of it has the only writer. `tests/fleet_protocol` is the
//! model of these rules.

use std::fmt;
use std::time::Duration;

use brigade_model::ids::{Epoch, Lane, Position, Seq, SessionId, Time};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::provider_limits::{LimitGrant, LimitReport};
use crate::store::{BoxFuture, StoreFuture};

/// The coordination of the nodes that share a store.
///
/// Leases are counted by the clock of the store. A crash, as in [`Store`](crate::Store), is the end of
/// this process at any instant: whatever it had begun is then done whole or not at all.
pub trait Fleet: fmt::Debug + Send + Sync + 'static {
    /// Adds a node with a lease and with lanes. Refused while an open node has its name.
    fn join<'a>(&'a self, node: &'a NewNode) -> StoreFuture<'a, JoinResult>;

    /// Extends the lease of a node from now on, and stores its load. Returns the time of the store.
    /// Returns `None` if the node is closed, or if the store may have lost commits since it joined
    /// ([`JoinedNode::history`]): its lanes accept no commit then, and it joins again. It stays so.
    fn renew<'a>(
        &'a self,
        node: NodeId,
        load: &'a NodeLoad,
    ) -> StoreFuture<'a, Option<LeaseRenewal>>;

    /// Closes a node and its lanes, and removes its calls and the open calls for it. The caller performs
    /// nothing any more.
    fn close_node(&self, node: NodeId) -> StoreFuture<'_, ()>;

    /// Closes the nodes whose lease is over, as [`Fleet::leave`] does. Returns those that this call has
    /// closed. A store that was unavailable gives each node the time of its lease to renew it.
    fn close_expired(&self) -> StoreFuture<'_, Vec<NodeRow>>;

    /// Returns the open nodes, and those that were closed in the last day, by ascending id.
    /// [`Store::prune`](crate::Store::prune) removes older ones.
    fn nodes(&self) -> StoreFuture<'_, Vec<NodeRow>>;

    /// Marks a node as draining, or as a taker of work again. Returns false if there is no such open node.
    fn set_draining(&self, node: NodeId, draining: bool) -> StoreFuture<'_, bool>;

    /// Makes a lane the owner of sessions that need one: those with open calls, those that are due,
    /// then those of closed lanes. Sessions with calls or due come only if nobody owns them.
    ///
    /// Sessions that another node is acquiring at the same time are skipped, and so are those whose needs
    /// the node does not meet, and those that wait for another open node ([`SessionRelease::next_owner`])
    /// and were released less than [`NEXT_OWNER_TIME`] ago.
    /// After an error, some of them may be owned: [`Fleet::owned_sessions`] returns them.
    fn claim<'a>(&'a self, claim: &'a SessionClaim) -> StoreFuture<'a, Vec<ClaimedSession>>;

    /// Returns the sessions that a lane owns, without closed ones, which need no owner.
    fn owned_sessions(&self, lane: Lane) -> StoreFuture<'_, Vec<SessionId>>;

    /// Gives up the ownership of a session at rest. Returns false, and changes nothing, if the lane is
    /// closed, or if the lane, the epoch or the sequence number is not the stored one.
    ///
    /// After an error, it may be done or arrive late, like a commit
    /// ([`Store::refuse_late_commits`](crate::Store::refuse_late_commits)).
    fn release<'a>(&'a self, release: &'a SessionRelease) -> StoreFuture<'a, bool>;

    /// Sets the labels that a node must have to claim or acquire a session, in place of earlier ones. The
    /// owner stays. Returns false if there is no such session.
    fn require_labels<'a>(
        &'a self,
        session: SessionId,
        labels: &'a [String],
    ) -> StoreFuture<'a, bool>;

    /// Returns the labels that sessions require, in any order. Sessions that require none are missing.
    fn required_labels<'a>(
        &'a self,
        sessions: &'a [SessionId],
    ) -> StoreFuture<'a, Vec<RequiredLabels>>;

    /// Returns the owners of sessions, in any order. Sessions without an owner are missing.
    fn owners<'a>(&'a self, sessions: &'a [SessionId]) -> StoreFuture<'a, Vec<SessionOwner>>;

    /// Stores a call. Returns false if its session does not exist or its node is not open. A call that is
    /// stored already stays as it is. A call of a closed node counts as removed.
    fn ask<'a>(&'a self, call: &'a NewCall) -> StoreFuture<'a, bool>;

    /// Returns calls without a reply: those for a node, and those for the sessions of its lanes, oldest
    /// first. A call that exists while its pages are read is in one of them.
    fn open_calls<'a>(&'a self, query: &'a OpenCallQuery) -> StoreFuture<'a, Vec<OpenCall>>;

    /// Returns those of the calls that have a reply or do not exist any more.
    fn replies<'a>(&'a self, calls: &'a [CallId]) -> StoreFuture<'a, Vec<CallResult>>;

    /// Stores the reply to a call for a node. The reply to a call for a session is part of a batch
    /// ([`Batch::answers`](crate::Batch::answers)). The first reply stays.
    fn answer<'a>(&'a self, answer: &'a CallAnswer) -> StoreFuture<'a, ()>;

    /// Removes calls. Returns those that existed, with their replies: none is answered any more.
    fn remove_calls<'a>(&'a self, calls: &'a [CallId]) -> StoreFuture<'a, Vec<CallResult>>;

    /// Exchanges what a node holds of a provider's limits. All nodes together never hold more than the
    /// limits: a node gets what nobody holds, and closed nodes hold nothing.
    ///
    /// Returns `None`, and changes nothing, if the node is closed or the report is outdated. A crash of
    /// the store may lose the report; the next one of each node repeats it.
    fn exchange_limits<'a>(
        &'a self,
        report: &'a LimitReport,
    ) -> StoreFuture<'a, Option<LimitGrant>>;

    /// Tells the other nodes that there may be calls, replies, events or sessions to claim. A hint may be
    /// lost, so each node also polls.
    fn notify(&self) -> StoreFuture<'_, ()>;

    /// Waits for a hint that arrives from now on. A store without hints waits for ever. Nodes that share a
    /// handle of a store may not get the hints of each other.
    fn next_hint(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// The time for which a released session waits for its next owner. That node may be full, drain, or not be
/// able to read the session.
pub const NEXT_OWNER_TIME: Duration = Duration::from_secs(5);

/// The id of a node from its join until its end. A node that joins again has another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// A node that joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// The name, unique among the open nodes.
    pub name: String,
    /// The machine that has the node's files. Processes of a host can be adopted by any node there.
    pub host: String,
    /// The labels that sessions can need.
    pub labels: Vec<String>,
    /// The most sessions that the node claims; `None` for any number.
    pub capacity: Option<u64>,
    /// The version of the program, for people.
    pub version: String,
    /// The time for which a renewal protects the node's sessions.
    pub lease: Duration,
    /// The number of lanes, one for each loop.
    pub lanes: u32,
}

/// The result of a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinResult {
    Joined(JoinedNode),
    /// An open node has the name.
    NameTaken(NodeRow),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedNode {
    pub node: NodeId,
    pub lanes: Vec<Lane>,
    pub renewal: LeaseRenewal,
    /// The history of the store. A store that may have lost commits has another one from then on, as
    /// after the promotion of a replica.
    pub history: u64,
}

/// A lease that was extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRenewal {
    /// The time of the store.
    pub now: Time,
    /// True if the node is to take no more work.
    pub draining: bool,
}

/// The load that a node reports with each renewal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// The sessions in memory.
    pub sessions: u64,
    /// The tasks that run.
    pub running: u64,
    /// The node's clock minus the clock of the store, in milliseconds.
    pub skew_ms: i64,
}

/// A node, open or closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub id: NodeId,
    pub name: String,
    pub host: String,
    pub open: bool,
    pub draining: bool,
    pub labels: Vec<String>,
    pub capacity: Option<u64>,
    pub version: String,
    pub joined_at: Time,
    /// The end of the lease, by the clock of the store.
    pub lease_until: Time,
    /// The time of the store when this row was read.
    pub now: Time,
    pub load: NodeLoad,
    /// The sessions that the node owns, without closed ones.
    pub owned_sessions: u64,
}

/// A request for sessions that need an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionClaim {
    pub node: NodeId,
    pub lane: Lane,
    /// The time of the node, which decides which sessions are due.
    pub now: Time,
    pub limit: usize,
    /// Sessions that the node does not want, for example because it cannot read them.
    pub skipped: Vec<SessionId>,
}

/// A session that a lane owns from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimedSession {
    pub id: SessionId,
    pub epoch: Epoch,
    pub seq: Seq,
    /// The position of its last event.
    pub last: Position,
}

/// The end of an ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRelease {
    pub lane: Lane,
    pub id: SessionId,
    pub epoch: Epoch,
    pub seq: Seq,
    /// The time at which the session needs an owner again.
    pub next_due: Option<Time>,
    /// The node that is to claim the session, while it is open, and for a limited time.
    pub next_owner: Option<NodeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOwner {
    pub session: SessionId,
    pub node: NodeId,
}

/// The labels that a node must have to own a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredLabels {
    pub session: SessionId,
    pub labels: Vec<String>,
}

/// The id of a call, chosen by its asker, so that a repeated request is the same call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub Uuid);

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}", self.0)
    }
}

/// The addressee of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallTarget {
    /// Whoever owns the session answers in the commit of its events.
    Session(SessionId),
    Node(NodeId),
}

/// A request to another node, encoded by the asker.
#[derive(Clone, PartialEq, Eq)]
pub struct NewCall {
    pub id: CallId,
    pub target: CallTarget,
    /// The node that waits for the reply. The call is removed with it.
    pub asked_by: NodeId,
    pub request: Vec<u8>,
}

impl fmt::Debug for NewCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewCall")
            .field("id", &self.id)
            .field("target", &self.target)
            .field("request", &format_args!("{} bytes", self.request.len()))
            .finish_non_exhaustive()
    }
}

/// A place in the order in which calls were asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallPlace {
    /// The time of the call in the store, or its number.
    pub order: u64,
    pub id: CallId,
}

/// A page of the calls without a reply that a node has to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCallQuery {
    pub node: NodeId,
    /// The place of the last call of the page before.
    pub after: Option<CallPlace>,
    pub limit: usize,
}

/// A call without a reply.
#[derive(Clone, PartialEq, Eq)]
pub struct OpenCall {
    pub id: CallId,
    pub place: CallPlace,
    pub target: CallTarget,
    pub request: Vec<u8>,
}

impl fmt::Debug for OpenCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenCall")
            .field("id", &self.id)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// The reply to a call, encoded by whoever answers.
#[derive(Clone, PartialEq, Eq)]
pub struct CallAnswer {
    pub id: CallId,
    pub reply: Vec<u8>,
    /// True if the batch is refused when the call was removed: its events have a meaning only for the
    /// asker.
    pub must_exist: bool,
}

impl fmt::Debug for CallAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallAnswer").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A call that is answered or removed.
#[derive(Clone, PartialEq, Eq)]
pub struct CallResult {
    pub id: CallId,
    /// The reply, or `None` if the call was removed.
    pub reply: Option<Vec<u8>>,
}

impl fmt::Debug for CallResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallResult")
            .field("id", &self.id)
            .field("answered", &self.reply.is_some())
            .finish()
    }
}
