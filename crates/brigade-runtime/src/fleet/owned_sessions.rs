//! The loop of a node: which sessions it owns, and what it does for other nodes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use brigade_model::command::Command;
use brigade_model::decide::CommandReply;
use brigade_model::ids::{Epoch, Lane, Millis, Position, SessionId, Time};
use brigade_model::refusal::Refusal;
use brigade_model::transition::SubmittedCommand;
use brigade_store::{
    AcquireResult, CallId, CallTarget, LoadedSession, NodeId, OpenCall, SessionRelease, StoreError,
};
use futures_util::future::join_all;

#[cfg(feature = "processes")]
use super::host_push::HostPushes;
use super::host_watch::{KnownNodes, next_host_check};
use super::session_rest::{halt_movable, is_at_rest, is_movable};
use super::unreadable_sessions::is_unreadable;
use super::{AttemptLease, CallClient, CallReply, CallRequest, Node};
use crate::commit::{Decided, DeferredReply};
use crate::loop_input::{ReplyTo, SubmitResult, WaitInput};
use crate::supervisor::Supervisor;

/// The time at rest after which a session is given up.
const RELEASE_DELAY: Millis = Millis(30_000);
/// The time for which requests go to another owner without a look whether it still owns the session.
pub(super) const OWNER_KNOWN: Millis = Millis(5_000);
/// The number of sessions of other nodes above which old ones are forgotten.
const ELSEWHERE_MAX: usize = 1_024;
/// The most sessions that one turn gives up.
const RELEASES_MAX: usize = 256;

/// The ownership of sessions by the loop of a node.
#[derive(Debug)]
pub(crate) struct OwnedSessions {
    pub(crate) node: Arc<Node>,
    loop_index: usize,
    pub(crate) calls: CallClient,
    /// The lease of the attempts that are started now.
    pub(super) lease: Arc<AttemptLease>,
    /// Sessions that another node owned at the last look, and the time of that.
    pub(super) elsewhere: HashMap<SessionId, Time>,
    /// Sessions that this loop has given up while a claim was on its way, with their last epochs. A claim
    /// that was made before is outdated.
    given_up: HashMap<SessionId, Epoch>,
    /// Sessions that were acquired and not recovered yet.
    unrecovered: HashSet<SessionId>,
    /// Sessions that were recovered in this turn.
    pub(super) recovered: Vec<SessionId>,
    /// Sessions whose performers could not look in this turn.
    pub(super) failed_recoveries: Vec<SessionId>,
    resting: RestingSessions,
    /// Sessions with processes that were started on other hosts.
    pub(super) hosted_elsewhere: BTreeSet<SessionId>,
    #[cfg(feature = "processes")]
    pub(super) host_pushes: HostPushes,
    /// The nodes of the last look.
    pub(super) known_nodes: Option<KnownNodes>,
    /// Nodes to which sessions are to be given.
    pub(super) moving: HashMap<SessionId, NodeId>,
    /// The id of the next wait of another node. Those of this process are lower.
    next_call_wait: u64,
}

/// The sessions at rest, by the time since when.
#[derive(Debug, Default)]
struct RestingSessions {
    ordered: BTreeSet<(Time, SessionId)>,
    since: HashMap<SessionId, Time>,
}

/// Sessions that a lane has claimed.
#[derive(Debug)]
pub(crate) struct ClaimedSessions {
    pub(crate) lane: Lane,
    pub(crate) sessions: Vec<LoadedClaim>,
}

#[derive(Debug)]
pub(crate) struct LoadedClaim {
    pub(crate) session: LoadedSession,
    /// The position of the session's last event, if it is known.
    pub(crate) last: Option<Position>,
}

impl OwnedSessions {
    pub(crate) fn new(node: Arc<Node>, calls: CallClient, loop_index: usize) -> Self {
        Self {
            lease: AttemptLease::new(&node),
            node,
            loop_index,
            calls,
            elsewhere: HashMap::new(),
            given_up: HashMap::new(),
            unrecovered: HashSet::new(),
            recovered: Vec::new(),
            failed_recoveries: Vec::new(),
            resting: RestingSessions::default(),
            hosted_elsewhere: BTreeSet::new(),
            #[cfg(feature = "processes")]
            host_pushes: HostPushes::default(),
            known_nodes: None,
            moving: HashMap::new(),
            next_call_wait: u64::MAX / 2,
        }
    }

    pub(crate) fn is_elsewhere(&self, session: SessionId) -> bool {
        self.elsewhere.contains_key(&session)
    }

    /// Returns the time at which the next session is given up.
    pub(crate) fn next_release(&self) -> Option<Time> {
        let (since, _) = self.resting.ordered.first()?;
        Some(since.after(self.release_delay()))
    }

    fn release_delay(&self) -> Millis {
        match self.node.is_draining.load(Ordering::Relaxed) {
            true => Millis(0),
            false => RELEASE_DELAY,
        }
    }
}

impl RestingSessions {
    /// Notes that a session is at rest. The time counts from its last change.
    fn add(&mut self, session: SessionId, now: Time) {
        self.remove(session);
        self.since.insert(session, now);
        self.ordered.insert((now, session));
    }

    fn remove(&mut self, session: SessionId) {
        if let Some(since) = self.since.remove(&session) {
            self.ordered.remove(&(since, session));
        }
    }

    fn take_until(&mut self, until: Time, most: usize) -> Vec<SessionId> {
        let due = self.ordered.iter().take_while(|(since, _)| *since <= until).take(most);
        let due: Vec<SessionId> = due.map(|(_, session)| *session).collect();
        for session in &due {
            self.remove(*session);
        }
        due
    }
}

impl Supervisor {
    /// Acquires a session for this node and loads it. Returns `Fenced` if another node owns it.
    pub(crate) async fn acquire_in_fleet(&mut self, id: SessionId) -> Result<(), StoreError> {
        loop {
            let store = self.store.clone();
            let row = match self.while_held(store.session(id)).await {
                Err(error) if is_unreadable(&error) => {
                    return Err(self.find_reader(id, error).await);
                }
                row => row?,
            };
            let Some(row) = row else { return Ok(()) };
            let acquired = self.while_held(store.acquire(self.lane, &row)).await;
            // Without an answer, it may have happened.
            match acquired.inspect_err(|_| self.note_not_loaded(id, row.epoch.next()))? {
                AcquireResult::Changed => {}
                AcquireResult::Owned | AcquireResult::LabelsMissing => {
                    let now = self.clock.now();
                    if let Some(owned) = &mut self.owned {
                        owned.elsewhere.insert(id, now);
                    }
                    return Err(StoreError::Fenced(format!("session {id}")));
                }
                AcquireResult::Acquired(acquired) => {
                    let loaded = self.while_held(store.load(id)).await;
                    let loaded = loaded.inspect_err(|error| match is_unreadable(error) {
                        true => self.give_up_unreadable(&row, acquired.epoch),
                        false => self.note_not_loaded(id, acquired.epoch),
                    })?;
                    let loaded = loaded.filter(|loaded| loaded.row.epoch == acquired.epoch);
                    let Some(loaded) = loaded else {
                        return Err(StoreError::Fenced(format!("session {id}")));
                    };
                    self.hold_claimed(loaded, acquired.last);
                    return Ok(());
                }
            }
        }
    }

    /// Notes that this node may have acquired a session with this epoch, and has not loaded it. A claim that
    /// is on its way to the loop has an earlier epoch, whose commits are refused.
    fn note_not_loaded(&mut self, id: SessionId, epoch: Epoch) {
        self.note_unheld();
        if let Some(owned) = &mut self.owned {
            owned.note_given_up(id, epoch);
        }
    }

    fn note_unheld(&self) {
        if let Some(owned) = &self.owned {
            owned.node.may_own_unheld.store(true, Ordering::Relaxed);
        }
    }

    /// Puts a session that this node owns now into memory. It is recovered before the next command.
    fn hold_claimed(&mut self, loaded: LoadedSession, last: Option<Position>) {
        let id = loaded.row.id;
        if let Some(last) = last {
            // Readers get the events of its earlier owners first.
            self.feed.advance_others(&[last].into_iter().collect());
        }
        self.hold_session(id, Some(loaded));
        if let Some(owned) = &mut self.owned {
            owned.elsewhere.remove(&id);
            owned.unrecovered.insert(id);
        }
        // The next turn recovers it, if no command of this one does.
        self.timers.set(id, Some(self.clock.now()));
    }

    /// Recovers a session that was acquired, before a command is decided for it.
    pub(crate) async fn recover_acquired(&mut self, id: SessionId, decided: &mut Decided) {
        let is_due = self.owned.as_mut().is_some_and(|owned| owned.unrecovered.remove(&id));
        if !is_due {
            return;
        }
        decided.loaded_sessions.push(id);
        let recovered = Box::pin(self.recover_into(id, decided)).await;
        let Some(owned) = &mut self.owned else { return };
        match recovered {
            Ok(()) => owned.recovered.push(id),
            Err(refusal) => {
                tracing::error!(%refusal, session = %id, "a session cannot be recovered yet");
                owned.failed_recoveries.push(id);
            }
        }
    }

    /// Repeats the stops of sessions that were recovered in this turn, and plans the recovery of those
    /// whose performers could not look.
    pub(crate) fn finish_recovered(&mut self) {
        let failed = self.owned.as_mut().map(|it| std::mem::take(&mut it.failed_recoveries));
        for id in failed.into_iter().flatten() {
            if let Some(owned) = &mut self.owned {
                owned.unrecovered.insert(id);
            }
            self.retry_later(id, self.clock.now());
        }
        let recovered = self.owned.as_mut().map(|owned| std::mem::take(&mut owned.recovered));
        for id in recovered.into_iter().flatten() {
            self.resume_stops(id);
        }
    }

    /// Recovers again what was recovered in a turn that was not stored.
    pub(crate) fn repeat_recovery(&mut self) {
        let now = self.clock.now();
        let Some(owned) = &mut self.owned else { return };
        let mut again = std::mem::take(&mut owned.recovered);
        again.append(&mut owned.failed_recoveries);
        for id in again {
            if self.trees.contains_key(&id) || self.discarded_trees.contains_key(&id) {
                owned.unrecovered.insert(id);
                self.timers.set(id, Some(now));
            }
        }
    }

    pub(crate) async fn decide_claimed(
        &mut self,
        claimed: ClaimedSessions,
        now: Time,
        decided: &mut Decided,
    ) {
        if claimed.lane != self.lane {
            // They were claimed with an earlier lease.
            return;
        }
        if let Some(owned) = &mut self.owned {
            // The nodes whose sessions these were may have been closed since.
            owned.known_nodes = None;
        }
        for LoadedClaim { session, last } in claimed.sessions {
            let id = session.row.id;
            let given_up = self.owned.as_ref().and_then(|owned| owned.given_up.get(&id));
            if self.holds(id) || given_up.is_some_and(|epoch| session.row.epoch <= *epoch) {
                continue;
            }
            self.hold_claimed(session, last);
            self.recover_acquired(id, decided).await;
            decided.loaded_sessions.push(id);
            let _ = self.decide(id, (&Command::Tick).into(), now, decided).await;
        }
    }

    /// Acquires sessions that this node owns without having them in memory. A new epoch refuses a
    /// release that arrives late.
    pub(crate) async fn hold_owned(&mut self, owned: Vec<SessionId>) {
        for id in owned {
            if self.holds(id) {
                continue;
            }
            match self.acquire_in_fleet(id).await {
                Ok(()) => tracing::warn!(session = %id, "an own session was not in memory"),
                Err(error) => tracing::warn!(%error, session = %id, "it cannot be loaded"),
            }
        }
    }

    /// Returns true if a session is in memory, or is to be loaded again.
    pub(super) fn holds(&self, id: SessionId) -> bool {
        self.trees.contains_key(&id) || self.discarded_trees.contains_key(&id)
    }

    /// Decides calls of other nodes.
    pub(crate) async fn decide_calls(
        &mut self,
        calls: Vec<OpenCall>,
        now: Time,
        decided: &mut Decided,
    ) {
        for call in calls {
            let CallTarget::Session(session) = call.target else { continue };
            if self.load_from_store(session).await.is_err() {
                // Its owner gets the call, or this node when the store is back.
                self.forget_call(call.id);
                continue;
            }
            match CallRequest::decode(&call.request) {
                Ok(CallRequest::Wait { collect, origin }) => {
                    let id = self.next_call_wait();
                    let reply = ReplyTo::Call(call.id);
                    let wait =
                        WaitInput { id, session, collect, origin, cancellation: None, reply };
                    self.decide_wait(wait, now, decided).await;
                }
                Ok(CallRequest::SubmitAll { commands, origin }) => {
                    let mut results = Vec::with_capacity(commands.len());
                    for command in &commands {
                        let submitted = SubmittedCommand { command, origin: origin.as_ref() };
                        results.push(self.decide(session, submitted, now, decided).await);
                    }
                    decided.replies.push(DeferredReply::Call(call.id, CallReply::Many(results)));
                }
                Ok(CallRequest::Submit { command, origin }) => {
                    let submitted = SubmittedCommand { command: &command, origin: origin.as_ref() };
                    let result = self.decide(session, submitted, now, decided).await;
                    decided.replies.push(DeferredReply::Call(call.id, CallReply::One(result)));
                }
                Ok(CallRequest::Move { to }) => {
                    let result = self.move_session(session, to, now).await;
                    decided.replies.push(DeferredReply::Call(call.id, CallReply::One(result)));
                }
                Err(refusal) => {
                    let reply = CallReply::One(Err(refusal));
                    decided.replies.push(DeferredReply::Call(call.id, reply));
                }
            }
        }
    }

    fn next_call_wait(&mut self) -> u64 {
        self.owned.as_mut().map_or(u64::MAX, |owned| {
            owned.next_call_wait += 1;
            owned.next_call_wait
        })
    }

    /// Notes that a session is to be given to another node as soon as it is at rest.
    pub(crate) async fn move_session(
        &mut self,
        session: SessionId,
        to: NodeId,
        now: Time,
    ) -> SubmitResult<CommandReply> {
        self.load_session(session).await?;
        let Some(owned) = &mut self.owned else {
            return Err(Refusal::invalid("this runtime is no node of a fleet"));
        };
        if owned.node.id() != to {
            owned.moving.insert(session, to);
            let host = &owned.node.host;
            if self.trees.get(&session).is_some_and(|tree| is_movable(tree, host)) {
                owned.resting.add(session, Time(now.0.saturating_sub(RELEASE_DELAY.0)));
            }
        }
        Ok(CommandReply::Done)
    }

    /// Marks the calls of a stored turn as answered, and tells the other nodes.
    pub(crate) fn turn_stored(&self, answered: &[CallId]) {
        let Some(owned) = &self.owned else { return };
        for id in answered {
            owned.node.served_calls.set_answered(*id);
        }
        owned.node.committed.notify_one();
    }

    /// Lets calls of a turn that was not stored be read again.
    pub(crate) fn turn_failed(&self, answered: &[CallId]) {
        for id in answered {
            self.forget_call(*id);
        }
    }

    pub(super) fn forget_call(&self, id: CallId) {
        if let Some(owned) = &self.owned {
            owned.node.served_calls.forget(id);
        }
    }

    /// Notes whether a session is at rest after a turn.
    pub(crate) fn observe_rest(&mut self, id: SessionId) {
        let Some(owned) = &mut self.owned else { return };
        let now = self.clock.now();
        let is_moving = owned.moving.contains_key(&id);
        let host = &owned.node.host;
        let is_resting = (is_moving || !self.waiters.has_waits_in(id))
            && !owned.unrecovered.contains(&id)
            && self.trees.get(&id).is_some_and(|tree| match is_moving {
                true => is_movable(tree, host),
                false => is_at_rest(tree, host),
            });
        match is_resting {
            true if is_moving => {
                owned.resting.add(id, Time(now.0.saturating_sub(RELEASE_DELAY.0)));
            }
            true => owned.resting.add(id, now),
            false => owned.resting.remove(id),
        }
    }

    /// Sets the load that the next renewal reports.
    pub(crate) fn set_load(&self) {
        let Some(owned) = &self.owned else { return };
        let load = &owned.node.loops[owned.loop_index];
        load.held_sessions.store(self.trees.len() as u64, Ordering::Relaxed);
        load.running_tasks.store(u64::from(self.slots.own_running()), Ordering::Relaxed);
    }

    /// Gives up sessions that have been at rest for long.
    pub(crate) async fn release_resting(&mut self) {
        let now = self.clock.now();
        let Some(owned) = &mut self.owned else { return };
        if !owned.node.lease.is_held() {
            return;
        }
        if owned.elsewhere.len() > ELSEWHERE_MAX {
            owned.elsewhere.retain(|_, looked_at| now.since(*looked_at) < OWNER_KNOWN);
        }
        let until = Time(now.0.saturating_sub(owned.release_delay().0));
        let due = owned.resting.take_until(until, RELEASES_MAX);
        let mut releases = Vec::with_capacity(due.len());
        for id in due {
            let Some(tree) = self.trees.get(&id) else { continue };
            let host = &owned.node.host;
            let may_release = match owned.moving.contains_key(&id) {
                true => is_movable(tree, host),
                false => is_at_rest(tree, host) && !self.waiters.has_waits_in(id),
            };
            if !may_release {
                continue;
            }
            halt_movable(tree, &self.performers);
            let row = tree.row();
            let host_check = next_host_check(tree, &owned.node.host, now);
            releases.push(SessionRelease {
                lane: self.lane,
                id,
                epoch: row.epoch,
                seq: row.seq,
                next_due: tree.next_due().into_iter().chain(host_check).min(),
                next_owner: owned.moving.remove(&id),
            });
        }
        if releases.is_empty() {
            return;
        }
        let node = owned.node.clone();
        let fleet = node.fleet();
        let releasing = join_all(releases.iter().map(|release| fleet.release(release)));
        let Ok(results) = self.while_held(async { Ok(releasing.await) }).await else { return };
        for (release, result) in releases.iter().zip(results) {
            match result {
                Ok(true) => {}
                Ok(false) => tracing::error!(session = %release.id, "a session has another owner"),
                // It may be released or not: whoever needs it acquires it, also this node.
                Err(error) => {
                    tracing::warn!(%error, session = %release.id, "a release is in doubt");
                    self.note_unheld();
                }
            }
            self.drop_session(release.id);
            if release.next_owner.is_some() {
                self.send_waits_on(release.id, now);
            }
        }
        node.committed.notify_one();
    }

    /// Lets the waits of a session that was given to another node continue there.
    fn send_waits_on(&mut self, id: SessionId, now: Time) {
        let waits = self.waiters.take_all_of(id);
        let Some(owned) = &mut self.owned else { return };
        // This node does not acquire the session before the other one has it.
        owned.elsewhere.insert(id, now);
        waits.into_iter().for_each(|wait| owned.send_wait(wait));
    }

    /// Removes a session from memory that this node has released. Its view stays as it is.
    fn drop_session(&mut self, id: SessionId) {
        let tree = self.trees.remove(&id);
        if let (Some(owned), Some(tree)) = (&mut self.owned, tree) {
            owned.note_given_up(id, tree.row().epoch);
        }
        if let Some(view) = self.views.remove(&id) {
            view.release();
        }
        self.timers.set(id, None);
        self.slots.forget(id);
        self.forget_session(id);
    }

    /// Forgets the state of a session that this node does not hold any more.
    pub(crate) fn forget_session(&mut self, id: SessionId) {
        if let Some(owned) = &mut self.owned {
            owned.resting.remove(id);
            owned.unrecovered.remove(&id);
            owned.moving.remove(&id);
            #[cfg(feature = "processes")]
            {
                owned.host_pushes.forget(id);
                owned.node.host_ends.forget(id);
            }
            owned.forget_hosted_elsewhere(id);
        }
    }
}

impl OwnedSessions {
    /// Notes the last epoch of a session that this loop gives up. Without a claim on its way, no older one
    /// can arrive.
    pub(crate) fn note_given_up(&mut self, id: SessionId, epoch: Epoch) {
        if !self.node.is_claiming.load(Ordering::Relaxed) {
            self.given_up.clear();
        }
        self.given_up.insert(id, epoch);
    }

    pub(super) fn note_hosted_elsewhere(&mut self, id: SessionId) {
        self.hosted_elsewhere.insert(id);
        self.count_hosted_elsewhere();
    }

    pub(super) fn forget_hosted_elsewhere(&mut self, id: SessionId) {
        self.hosted_elsewhere.remove(&id);
        self.count_hosted_elsewhere();
    }

    fn count_hosted_elsewhere(&self) {
        let count = self.hosted_elsewhere.len() as u64;
        self.node.loops[self.loop_index].hosted_elsewhere.store(count, Ordering::Relaxed);
    }

    /// Ends this node in good order: others may take its sessions at once.
    pub(crate) async fn end_node(&self) {
        self.node.ended.cancel();
        if let Err(error) = self.node.fleet().close_node(self.node.id()).await {
            tracing::warn!(%error, "the node ends with its lease");
        }
        let _ = self.node.fleet().notify().await;
    }
}
