//! The nodes of one process that share a store in memory: for tests of a fleet.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::ready;

use brigade_model::id_map::IdMap;
use brigade_model::ids::{Lane, Millis, Position, SessionId, Time};
use brigade_model::task_tree::SessionState;

use crate::batch::Batch;
use crate::error::StoreError;
use crate::fleet::{
    CallAnswer, CallId, CallPlace, CallResult, CallTarget, ClaimedSession, Fleet, JoinResult,
    JoinedNode, LeaseRenewal, NEXT_OWNER_TIME, NewCall, NewNode, NodeId, NodeLoad, NodeRow,
    OpenCall, OpenCallQuery, RequiredLabels, SessionClaim, SessionOwner, SessionRelease,
};
use crate::memory::{MemoryState, MemoryStore};
use crate::memory_limits::LimitLedgers;
use crate::provider_limits::{LimitGrant, LimitReport};
use crate::store::{BoxFuture, StoreFuture};

/// The function that returns the time of the store.
pub(crate) struct LeaseClock(pub(crate) Box<dyn Fn() -> Time + Send + Sync>);

impl fmt::Debug for LeaseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseClock")
    }
}

/// Nodes, the owners of sessions, calls, and providers' limits.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryFleet {
    /// True if nodes can join. Without them, nobody needs to know the owners.
    pub(crate) is_enabled: bool,
    nodes: BTreeMap<NodeId, MemoryNode>,
    /// The number of joins so far.
    joined_nodes: u64,
    /// The lanes of nodes. Other lanes belong to no node.
    lanes: BTreeMap<Lane, MemoryLane>,
    ownerships: IdMap<SessionId, Ownership>,
    calls: VecDeque<MemoryCall>,
    /// The number of calls so far.
    asked_calls: u64,
    limits: LimitLedgers,
    /// The number of times that the store was put back to an earlier state.
    history: u64,
}

#[derive(Clone, Debug)]
struct MemoryNode {
    row: NodeRow,
    lease: std::time::Duration,
    /// True if the store was put back to an earlier state since the join.
    is_outdated: bool,
    /// The time at which the node was closed, if it is.
    closed_at: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct MemoryLane {
    node: NodeId,
    open: bool,
    /// True if the store was put back to an earlier state since the lane was opened.
    is_outdated: bool,
    /// True if the feed has no event of the lane any more. A closed lane never opens again.
    is_removed: bool,
}

#[derive(Clone, Debug, Default)]
struct Ownership {
    lane: Option<Lane>,
    last: Option<Position>,
    next_due: Option<Time>,
    next_owner: Option<NodeId>,
    /// The time from which any node may claim the session.
    next_owner_until: Time,
    required_labels: Vec<String>,
}

#[derive(Clone, Debug)]
struct MemoryCall {
    call: NewCall,
    place: CallPlace,
    reply: Option<Vec<u8>>,
}

/// The time for which a closed node is listed.
const NODE_KEPT: Millis = Millis(24 * 60 * 60 * 1_000);

/// The reason for which a session needs an owner, in the order of claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ClaimReason {
    OpenCall,
    Due(Time),
    ClosedLane,
}

impl MemoryFleet {
    /// Refuses a batch of a closed lane, of a lane that does not own its sessions, or that answers a call
    /// twice, or a removed one that must exist.
    pub(crate) fn check_writer(&self, batch: &Batch) -> Result<(), StoreError> {
        self.check_open(batch.lane)?;
        if self.is_open(batch.lane) {
            for part in &batch.sessions {
                let owner = self.ownerships.get(&part.row.id);
                if owner.is_some_and(|owner| owner.lane != Some(batch.lane)) {
                    return Err(StoreError::Fenced(format!("{} has another owner", part.row.id)));
                }
            }
        }
        let stored = |id: CallId| self.calls.iter().find(|stored| stored.call.id == id);
        let is_closed = |answer: &&CallAnswer| {
            stored(answer.id).map_or(answer.must_exist, |stored| stored.reply.is_some())
        };
        let closed = batch.answers.iter().filter(is_closed).map(|answer| answer.id);
        match closed.collect::<Vec<_>>() {
            calls if calls.is_empty() => Ok(()),
            calls => Err(StoreError::CallClosed { calls }),
        }
    }

    pub(crate) fn store_answers(&mut self, answers: &[CallAnswer]) {
        for answer in answers {
            let found = self.calls.iter_mut().find(|stored| stored.call.id == answer.id);
            if let Some(stored) = found.filter(|stored| stored.reply.is_none()) {
                stored.reply = Some(answer.reply.clone());
            }
        }
    }

    /// Refuses the writer of a closed or outdated lane.
    pub(crate) fn check_open(&self, lane: Lane) -> Result<(), StoreError> {
        let is_outdated = self.lanes.get(&lane).is_some_and(|lane| lane.is_outdated);
        match is_outdated || self.is_closed(lane) {
            true => Err(StoreError::Fenced(format!("lane {} is closed", lane.0))),
            false => Ok(()),
        }
    }

    /// Returns true unless an open lane of another node owns the session.
    pub(crate) fn may_acquire(&self, session: SessionId, lane: Lane) -> bool {
        let node = self.lanes.get(&lane).map(|lane| lane.node);
        self.owner_node(session).is_none_or(|owner| Some(owner) == node)
    }

    /// Returns true if a lane may own a session by its labels: its node has all that the session
    /// requires, it owns the session already, or it belongs to no node.
    pub(crate) fn lane_has_labels(&self, session: SessionId, lane: Lane) -> bool {
        let Some(ownership) = self.ownerships.get(&session) else { return true };
        let node = self.lanes.get(&lane).and_then(|lane| self.nodes.get(&lane.node));
        node.is_none_or(|node| {
            self.owner_node(session) == Some(node.row.id) || has_labels(&node.row, ownership)
        })
    }

    pub(crate) fn set_owner(&mut self, session: SessionId, lane: Lane) {
        let ownership = self.ownerships.entry(session).or_default();
        ownership.lane = Some(lane);
        ownership.next_due = None;
        ownership.next_owner = None;
    }

    pub(crate) fn last_position(&self, session: SessionId) -> Option<Position> {
        self.ownerships.get(&session)?.last
    }

    pub(crate) fn set_last_position(&mut self, session: SessionId, last: Position) {
        self.ownerships.entry(session).or_default().last = Some(last);
    }

    pub(crate) fn remove_session(&mut self, session: SessionId) {
        self.ownerships.remove(&session);
        self.calls.retain(|stored| stored.call.target != CallTarget::Session(session));
    }

    /// Returns true for a lane that accepts nothing any more. A lane of no node is never closed.
    fn is_closed(&self, lane: Lane) -> bool {
        self.lanes.get(&lane).is_some_and(|lane| !lane.open)
    }

    fn is_open(&self, lane: Lane) -> bool {
        self.lanes.get(&lane).is_some_and(|lane| lane.open)
    }

    /// Continues after later states that the store has lost. Their nodes and lanes stay outdated, and
    /// their numbers are not given again.
    pub(crate) fn follow_lost(&mut self, lost: &Self) {
        self.history = lost.history + 1;
        self.joined_nodes = lost.joined_nodes;
        self.nodes.values_mut().for_each(|node| node.is_outdated = true);
        self.lanes.values_mut().for_each(|lane| lane.is_outdated = true);
        for (lane, row) in &lost.lanes {
            let closed = MemoryLane { open: false, is_outdated: true, ..*row };
            self.lanes.entry(*lane).or_insert(closed);
        }
    }

    fn is_open_node(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.row.open)
    }

    fn owner_node(&self, session: SessionId) -> Option<NodeId> {
        let lane = self.ownerships.get(&session)?.lane?;
        self.lanes.get(&lane).filter(|lane| lane.open).map(|lane| lane.node)
    }

    fn close(&mut self, node: NodeId, now: Time) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.row.open = false;
            node.closed_at.get_or_insert(now);
        }
        for lane in self.lanes.values_mut().filter(|lane| lane.node == node) {
            lane.open = false;
        }
        let is_lost = |stored: &MemoryCall| {
            stored.call.target == CallTarget::Node(node) && stored.reply.is_none()
        };
        self.calls.retain(|stored| stored.call.asked_by != node && !is_lost(stored));
    }

    fn claim_reason(
        &self,
        session: SessionId,
        claim: &SessionClaim,
        now: Time,
    ) -> Option<ClaimReason> {
        let ownership = self.ownerships.get(&session)?;
        let node = self.nodes.get(&claim.node)?;
        let is_for_another = now < ownership.next_owner_until
            && ownership
                .next_owner
                .is_some_and(|next| next != claim.node && self.is_open_node(next));
        let is_skipped = claim.skipped.contains(&session);
        if !has_labels(&node.row, ownership) || is_for_another || is_skipped {
            return None;
        }
        let is_free = match ownership.lane {
            None => true,
            Some(lane) => !self.is_open(lane),
        };
        let target = CallTarget::Session(session);
        let has_call =
            self.calls.iter().any(|stored| stored.call.target == target && stored.reply.is_none());
        match (is_free, ownership.lane, ownership.next_due) {
            (false, ..) => None,
            (true, ..) if has_call => Some(ClaimReason::OpenCall),
            (true, Some(_), _) => Some(ClaimReason::ClosedLane),
            (true, None, Some(due)) if due <= claim.now => Some(ClaimReason::Due(due)),
            (true, None, _) => ownership.next_owner.map(|_| ClaimReason::ClosedLane),
        }
    }
}

fn has_labels(node: &NodeRow, ownership: &Ownership) -> bool {
    ownership.required_labels.iter().all(|label| node.labels.contains(label))
}

impl MemoryState {
    /// Returns the owned sessions that are not closed, with their lanes.
    fn owned_sessions(&self) -> impl Iterator<Item = (SessionId, Lane)> {
        let open =
            self.sessions.values().filter(|session| session.row.state != SessionState::Closed);
        open.filter_map(|session| {
            let id = session.row.id;
            Some((id, self.fleet.ownerships.get(&id)?.lane?))
        })
    }

    fn node_row(&self, node: &MemoryNode, now: Time) -> NodeRow {
        let lanes = self.owned_sessions().filter_map(|(_, lane)| self.fleet.lanes.get(&lane));
        let owned_sessions = lanes.filter(|lane| lane.node == node.row.id).count() as u64;
        NodeRow { now, owned_sessions, ..node.row.clone() }
    }

    fn close_expired(&mut self, now: Time) -> Vec<NodeRow> {
        let nodes = self.fleet.nodes.values();
        let expired = nodes.filter(|node| node.row.open && node.row.lease_until <= now);
        let closed = expired.map(|node| NodeRow { open: false, ..self.node_row(node, now) });
        let closed: Vec<NodeRow> = closed.collect();
        for node in &closed {
            self.fleet.close(node.id, now);
        }
        closed
    }

    /// Removes nodes that were closed more than a day ago, and their lanes in the feed that own no session
    /// and have no event any more.
    pub(crate) fn remove_closed_nodes(&mut self, now: Time) {
        let is_old = |closed_at: Time| now.since(closed_at) > NODE_KEPT;
        let nodes = self.fleet.nodes.iter();
        let old = nodes.filter(|(_, node)| node.closed_at.is_some_and(is_old));
        let old: Vec<NodeId> = old.map(|(id, _)| *id).collect();
        let owners: Vec<Lane> = self.owned_sessions().map(|(_, lane)| lane).collect();
        for (lane, row) in &mut self.fleet.lanes {
            if old.contains(&row.node) && !row.is_removed && !owners.contains(lane) {
                row.is_removed = self.feed.remove_lane(*lane);
            }
        }
        let lanes = &self.fleet.lanes;
        let has_lane = |node: NodeId| lanes.values().any(|it| it.node == node && !it.is_removed);
        self.fleet.nodes.retain(|id, _| !old.contains(id) || has_lane(*id));
    }

    fn join(&mut self, new: &NewNode, now: Time) -> JoinResult {
        let taken =
            self.fleet.nodes.values().find(|node| node.row.open && node.row.name == new.name);
        if let Some(taken) = taken {
            return JoinResult::NameTaken(self.node_row(taken, now));
        }
        self.fleet.joined_nodes += 1;
        let node = NodeId(self.fleet.joined_nodes);
        let row = NodeRow {
            id: node,
            name: new.name.clone(),
            host: new.host.clone(),
            open: true,
            draining: false,
            labels: new.labels.clone(),
            capacity: new.capacity,
            version: new.version.clone(),
            joined_at: now,
            lease_until: now.after(new.lease.into()),
            now,
            load: NodeLoad::default(),
            owned_sessions: 0,
        };
        let joined = MemoryNode { row, lease: new.lease, is_outdated: false, closed_at: None };
        self.fleet.nodes.insert(node, joined);
        let lanes: Vec<Lane> = (0..new.lanes).map(|_| self.feed.open_lane()).collect();
        for lane in &lanes {
            let opened = MemoryLane { node, open: true, is_outdated: false, is_removed: false };
            self.fleet.lanes.insert(*lane, opened);
        }
        let renewal = LeaseRenewal { now, draining: false };
        JoinResult::Joined(JoinedNode { node, lanes, renewal, history: self.fleet.history })
    }

    fn claim(&mut self, claim: &SessionClaim, now: Time) -> Vec<ClaimedSession> {
        if !self.fleet.is_open(claim.lane) {
            return Vec::new();
        }
        let found = self.sessions.values().filter_map(|session| {
            let reason = self.fleet.claim_reason(session.row.id, claim, now)?;
            let is_closed = session.row.state == SessionState::Closed;
            (!is_closed || reason == ClaimReason::OpenCall).then_some((reason, session.row.id))
        });
        let mut found: Vec<(ClaimReason, SessionId)> = found.collect();
        found.sort();
        found.truncate(claim.limit);
        let mut claimed = Vec::new();
        for (_, id) in found {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            session.row.epoch = session.row.epoch.next();
            let epoch = session.row.epoch;
            let seq = session.row.seq;
            self.fleet.set_owner(id, claim.lane);
            let last = self.fleet.last_position(id);
            claimed.extend(last.map(|last| ClaimedSession { id, epoch, seq, last }));
        }
        claimed
    }

    fn release(&mut self, release: &SessionRelease, now: Time) -> bool {
        if self.fleet.is_closed(release.lane) {
            return false;
        }
        let row = self.sessions.get(&release.id).map(|session| &session.row);
        let same = row.is_some_and(|row| row.epoch == release.epoch && row.seq == release.seq);
        let ownership = self.fleet.ownerships.get_mut(&release.id);
        let Some(ownership) = ownership.filter(|owner| same && owner.lane == Some(release.lane))
        else {
            return false;
        };
        ownership.lane = None;
        ownership.next_due = release.next_due;
        ownership.next_owner = release.next_owner;
        ownership.next_owner_until = now.after(NEXT_OWNER_TIME.into());
        true
    }
}

impl MemoryStore {
    pub(crate) fn lease_now(&self) -> Time {
        self.lease_clock.as_ref().map_or(Time(0), |clock| clock.0())
    }

    fn change<'a, T: Send + 'a>(
        &'a self,
        change: impl FnOnce(&mut MemoryState, Time) -> T,
    ) -> StoreFuture<'a, T> {
        let changed = change(&mut self.lock(), self.lease_now());
        Box::pin(ready(Ok(changed)))
    }
}

impl Fleet for MemoryStore {
    fn join<'a>(&'a self, node: &'a NewNode) -> StoreFuture<'a, JoinResult> {
        self.change(|state, now| state.join(node, now))
    }

    fn renew<'a>(
        &'a self,
        node: NodeId,
        load: &'a NodeLoad,
    ) -> StoreFuture<'a, Option<LeaseRenewal>> {
        self.change(|state, now| {
            let node = state.fleet.nodes.get_mut(&node)?;
            if !node.row.open || node.is_outdated {
                return None;
            }
            node.row.lease_until = now.after(node.lease.into());
            node.row.load = *load;
            Some(LeaseRenewal { now, draining: node.row.draining })
        })
    }

    fn close_node(&self, node: NodeId) -> StoreFuture<'_, ()> {
        self.change(|state, now| state.fleet.close(node, now))
    }

    fn close_expired(&self) -> StoreFuture<'_, Vec<NodeRow>> {
        self.change(MemoryState::close_expired)
    }

    fn nodes(&self) -> StoreFuture<'_, Vec<NodeRow>> {
        self.change(|state, now| {
            state.fleet.nodes.values().map(|node| state.node_row(node, now)).collect()
        })
    }

    fn set_draining(&self, node: NodeId, draining: bool) -> StoreFuture<'_, bool> {
        self.change(|state, _| {
            let node = state.fleet.nodes.get_mut(&node).filter(|node| node.row.open);
            node.map(|node| node.row.draining = draining).is_some()
        })
    }

    fn claim<'a>(&'a self, claim: &'a SessionClaim) -> StoreFuture<'a, Vec<ClaimedSession>> {
        self.change(|state, now| state.claim(claim, now))
    }

    fn owned_sessions(&self, lane: Lane) -> StoreFuture<'_, Vec<SessionId>> {
        self.change(|state, _| {
            let owned = state.owned_sessions();
            owned.filter(|(_, owner)| *owner == lane).map(|(id, _)| id).collect()
        })
    }

    fn release<'a>(&'a self, release: &'a SessionRelease) -> StoreFuture<'a, bool> {
        self.change(|state, now| state.release(release, now))
    }

    fn require_labels<'a>(
        &'a self,
        session: SessionId,
        labels: &'a [String],
    ) -> StoreFuture<'a, bool> {
        self.change(|state, _| {
            let ownership = state.fleet.ownerships.get_mut(&session);
            ownership.map(|ownership| ownership.required_labels = labels.to_vec()).is_some()
        })
    }

    fn required_labels<'a>(
        &'a self,
        sessions: &'a [SessionId],
    ) -> StoreFuture<'a, Vec<RequiredLabels>> {
        self.change(|state, _| {
            let required = |session: &SessionId| {
                let labels = state.fleet.ownerships.get(session)?.required_labels.clone();
                (!labels.is_empty()).then_some(RequiredLabels { session: *session, labels })
            };
            sessions.iter().filter_map(required).collect()
        })
    }

    fn owners<'a>(&'a self, sessions: &'a [SessionId]) -> StoreFuture<'a, Vec<SessionOwner>> {
        self.change(|state, _| {
            let owner = |session: &SessionId| {
                let node = state.fleet.owner_node(*session)?;
                Some(SessionOwner { session: *session, node })
            };
            sessions.iter().filter_map(owner).collect()
        })
    }

    fn ask<'a>(&'a self, call: &'a NewCall) -> StoreFuture<'a, bool> {
        self.change(|state, _| {
            let exists = match call.target {
                CallTarget::Session(session) => state.sessions.contains_key(&session),
                CallTarget::Node(node) => state.fleet.is_open_node(node),
            };
            let is_asker_open = state.fleet.is_open_node(call.asked_by);
            let fleet = &mut state.fleet;
            let is_stored = fleet.calls.iter().any(|stored| stored.call.id == call.id);
            if exists && is_asker_open && !is_stored {
                fleet.asked_calls += 1;
                let place = CallPlace { order: fleet.asked_calls, id: call.id };
                fleet.calls.push_back(MemoryCall { call: call.clone(), place, reply: None });
            }
            exists
        })
    }

    fn open_calls<'a>(&'a self, query: &'a OpenCallQuery) -> StoreFuture<'a, Vec<OpenCall>> {
        self.change(|state, _| {
            let fleet = &state.fleet;
            let is_for_node = |target| match target {
                CallTarget::Session(session) => fleet.owner_node(session) == Some(query.node),
                CallTarget::Node(other) => other == query.node,
            };
            let is_after = |place| query.after.is_none_or(|after| place > after);
            let open = fleet.calls.iter().filter(|stored| stored.reply.is_none());
            let open = open.filter(|it| is_after(it.place) && is_for_node(it.call.target));
            open.take(query.limit)
                .map(|stored| OpenCall {
                    id: stored.call.id,
                    place: stored.place,
                    target: stored.call.target,
                    request: stored.call.request.clone(),
                })
                .collect()
        })
    }

    fn replies<'a>(&'a self, calls: &'a [CallId]) -> StoreFuture<'a, Vec<CallResult>> {
        self.change(|state, _| {
            let result = |id: &CallId| match state.fleet.calls.iter().find(|it| it.call.id == *id) {
                None => Some(CallResult { id: *id, reply: None }),
                Some(stored) => {
                    let reply = stored.reply.clone()?;
                    Some(CallResult { id: *id, reply: Some(reply) })
                }
            };
            calls.iter().filter_map(result).collect()
        })
    }

    fn answer<'a>(&'a self, answer: &'a CallAnswer) -> StoreFuture<'a, ()> {
        self.change(|state, _| state.fleet.store_answers(std::slice::from_ref(answer)))
    }

    fn remove_calls<'a>(&'a self, calls: &'a [CallId]) -> StoreFuture<'a, Vec<CallResult>> {
        self.change(|state, _| {
            let (removed, kept) = std::mem::take(&mut state.fleet.calls)
                .into_iter()
                .partition(|stored| calls.contains(&stored.call.id));
            state.fleet.calls = kept;
            let removed: VecDeque<MemoryCall> = removed;
            let result = |it: MemoryCall| CallResult { id: it.call.id, reply: it.reply };
            removed.into_iter().map(result).collect()
        })
    }

    fn exchange_limits<'a>(
        &'a self,
        report: &'a LimitReport,
    ) -> StoreFuture<'a, Option<LimitGrant>> {
        self.change(|state, now| {
            let open = state.fleet.nodes.values().filter(|node| node.row.open);
            let open: Vec<NodeId> = open.map(|node| node.row.id).collect();
            if !open.contains(&report.node) {
                return None;
            }
            state.fleet.limits.exchange(report, &open, now)
        })
    }

    fn notify(&self) -> StoreFuture<'_, ()> {
        self.hints.send();
        Box::pin(ready(Ok(())))
    }

    fn next_hint(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.hints.next())
    }
}
