//! The loops of a runtime. Each has a part of the sessions, by their ids, and a lane of its own.
//!
//! ```text
//! Open(name) ─ hash of the name ─┐           ┌─ loop 0 ─ commits in lane 0
//! Submit(session) ─ hash of the ─┴─ LoopSenders ─ loop 1 ─ commits in lane 1
//! Shutdown, Drain ─ every loop     session   └─ loop 2 ─ commits in lane 2
//! ```
//!
//! A session is always in the same loop of a process, so its commands keep their order. A [`LoopGroup`]
//! lets the loops take the steps together that concern all of them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use brigade_model::ids::SessionId;
use brigade_model::name::SessionName;
use futures_util::future::join_all;
use tokio::sync::{OnceCell, mpsc, watch};

use crate::ids::new_session_id;
use crate::loop_input::LoopInput;
use crate::performer::PerformerRegistry;

/// The most loops of a runtime.
pub(crate) const LOOPS_MAX: usize = 16;

/// The senders of all loops. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LoopSenders(Arc<[mpsc::Sender<LoopInput>]>);

/// The part of the sessions that one loop has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopShare {
    pub(crate) index: usize,
    pub(crate) count: usize,
}

impl LoopSenders {
    pub(crate) fn new(senders: Vec<mpsc::Sender<LoopInput>>) -> Self {
        Self(senders.into())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn at(&self, index: usize) -> &mpsc::Sender<LoopInput> {
        &self.0[index]
    }

    /// Returns the sender of the loop that has a session.
    pub(crate) fn of(&self, session: SessionId) -> &mpsc::Sender<LoopInput> {
        &self.0[loop_of(session, self.count())]
    }

    /// Returns the sender of the loop that opens a session of a name. If there is one already, another
    /// loop may have it.
    pub(crate) fn of_name(&self, name: &SessionName) -> &mpsc::Sender<LoopInput> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        &self.0[index_of(hasher.finish(), self.count())]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &mpsc::Sender<LoopInput>> {
        self.0.iter()
    }

    /// Sends an input to every loop. A full queue does not delay the other loops. Returns whether each
    /// has got it.
    pub(crate) async fn send_all(&self, mut input: impl FnMut() -> LoopInput) -> Vec<bool> {
        let sent = self.all().map(|sender| sender.send(input()));
        join_all(sent).await.iter().map(Result::is_ok).collect()
    }

    /// Sends to each loop an input about its part of some items, if it has any.
    pub(crate) async fn send_parts<T>(
        &self,
        items: Vec<T>,
        session: impl Fn(&T) -> SessionId,
        input: impl Fn(Vec<T>) -> LoopInput,
    ) {
        let parts = self.split(items, session).into_iter();
        let parts = parts.filter(|(_, part)| !part.is_empty());
        join_all(parts.map(|(sender, part)| sender.send(input(part)))).await;
    }

    /// Splits items by the loops that have their sessions.
    pub(crate) fn split<T>(
        &self,
        items: Vec<T>,
        session: impl Fn(&T) -> SessionId,
    ) -> Vec<(&mpsc::Sender<LoopInput>, Vec<T>)> {
        let mut parts: Vec<_> = self.all().map(|sender| (sender, Vec::new())).collect();
        for item in items {
            parts[loop_of(session(&item), self.count())].1.push(item);
        }
        parts
    }
}

impl LoopShare {
    /// Returns true if the loop has a session.
    pub(crate) fn includes(self, session: SessionId) -> bool {
        loop_of(session, self.count) == self.index
    }

    /// Returns the id of a new session of this loop.
    pub(crate) fn new_session_id(self) -> SessionId {
        loop {
            let id = new_session_id();
            if self.includes(id) {
                return id;
            }
        }
    }
}

/// Returns the index of the loop that has a session, by the random end of its id.
pub(crate) fn loop_of(session: SessionId, count: usize) -> usize {
    index_of(session.as_uuid().as_u64_pair().1, count)
}

fn index_of(hash: u64, count: usize) -> usize {
    match count {
        1 => 0,
        // The remainder is less than the number of loops.
        _ => usize::try_from(hash % count as u64).unwrap_or(0),
    }
}

/// The steps that the loops of a runtime take together.
#[derive(Debug)]
pub(crate) struct LoopGroup {
    state: watch::Sender<GroupState>,
    performers_ended: OnceCell<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct GroupState {
    /// The loops that perform actions.
    performing: usize,
    /// The loops that have not ended.
    alive: usize,
    /// The loops that have given up their sessions since the lease was lost.
    without_sessions: usize,
    /// True while one of them joins the fleet again.
    is_joining: bool,
    /// The number of joins after a lost lease.
    rejoins: u64,
}

/// One loop as a member of the group. A loop that panics ends its membership.
#[derive(Debug)]
pub(crate) struct LoopMember {
    group: Arc<LoopGroup>,
    is_performing: bool,
    is_alive: bool,
}

/// The wait of a loop without sessions for a new join of its node.
#[derive(Debug)]
pub(crate) struct RejoinWait {
    group: Arc<LoopGroup>,
    rejoins_before: u64,
    is_leader: bool,
}

/// The result of a [`RejoinWait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejoinTurn {
    /// No loop has sessions any more, and this one is to join for all.
    Lead,
    /// Another loop has joined.
    Joined,
}

impl LoopGroup {
    /// Returns the members of a group of this many loops.
    pub(crate) fn members(count: usize) -> Vec<LoopMember> {
        let state = GroupState { performing: count, alive: count, ..GroupState::default() };
        let group = Self { state: watch::channel(state).0, performers_ended: OnceCell::new() };
        let group = Arc::new(group);
        let member = |_| LoopMember { group: group.clone(), is_performing: true, is_alive: true };
        (0..count).map(member).collect()
    }
}

impl LoopMember {
    /// Ends the performers as soon as no loop performs actions any more.
    pub(crate) async fn end_performers(&mut self, performers: &PerformerRegistry) {
        self.stop_performing();
        let mut state = self.group.state.subscribe();
        // The sender is in the group, which this loop holds.
        let _ = state.wait_for(|state| state.performing == 0).await;
        self.group.performers_ended.get_or_init(|| performers.shutdown()).await;
    }

    /// Ends the membership. Returns true for the last loop.
    pub(crate) fn end(&mut self) -> bool {
        self.stop_performing();
        let mut is_last = false;
        if std::mem::take(&mut self.is_alive) {
            self.group.state.send_modify(|state| {
                state.alive -= 1;
                is_last = state.alive == 0;
            });
        }
        is_last
    }

    /// Notes that this loop has given up its sessions after the lease was lost.
    pub(crate) fn wait_to_rejoin(&self) -> RejoinWait {
        let mut rejoins_before = 0;
        self.group.state.send_modify(|state| {
            state.without_sessions += 1;
            rejoins_before = state.rejoins;
        });
        RejoinWait { group: self.group.clone(), rejoins_before, is_leader: false }
    }

    fn stop_performing(&mut self) {
        if std::mem::take(&mut self.is_performing) {
            self.group.state.send_modify(|state| state.performing -= 1);
        }
    }
}

impl Drop for LoopMember {
    fn drop(&mut self) {
        self.end();
    }
}

impl RejoinWait {
    /// Waits until no loop has sessions, or until another one has joined for all.
    pub(crate) async fn turn(&mut self) -> RejoinTurn {
        let mut changes = self.group.state.subscribe();
        loop {
            let state = *changes.borrow_and_update();
            if state.rejoins != self.rejoins_before {
                return RejoinTurn::Joined;
            }
            if self.begin_join() {
                return RejoinTurn::Lead;
            }
            // The sender is in the group, which this loop holds.
            let _ = changes.changed().await;
        }
    }

    fn begin_join(&mut self) -> bool {
        self.group.state.send_if_modified(|state| {
            let may_join = state.rejoins == self.rejoins_before
                && state.without_sessions >= state.performing
                && !state.is_joining;
            state.is_joining |= may_join;
            self.is_leader |= may_join;
            false
        });
        self.is_leader
    }

    /// Lets all loops continue after the join.
    pub(crate) fn finish(self) {
        self.group.state.send_modify(|state| {
            state.rejoins += 1;
            state.without_sessions = 0;
            state.is_joining = false;
        });
    }
}

impl Drop for RejoinWait {
    /// Ends a wait without a join, because the runtime ends.
    fn drop(&mut self) {
        self.group.state.send_if_modified(|state| {
            let is_over = state.rejoins != self.rejoins_before;
            if !is_over {
                state.without_sessions -= 1;
                state.is_joining &= !self.is_leader;
            }
            !is_over
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn sessions_are_spread_over_all_loops() {
        let mut counts = BTreeMap::<usize, u32>::new();
        for _ in 0..4_000 {
            *counts.entry(loop_of(new_session_id(), 4)).or_default() += 1;
        }
        assert_eq!(counts.len(), 4);
        assert!(counts.values().all(|count| *count > 500), "{counts:?}");
    }

    #[test]
    fn a_new_session_is_of_its_loop() {
        for index in 0..3 {
            let share = LoopShare { index, count: 3 };
            assert_eq!(loop_of(share.new_session_id(), 3), index);
        }
    }

    #[tokio::test]
    async fn one_loop_joins_when_all_have_given_up_their_sessions() {
        let members = LoopGroup::members(2);
        let mut first = members[0].wait_to_rejoin();
        assert!(!first.begin_join());
        let mut second = members[1].wait_to_rejoin();
        assert_eq!(second.turn().await, RejoinTurn::Lead);
        assert!(!first.begin_join());
        second.finish();
        assert_eq!(first.turn().await, RejoinTurn::Joined);
        drop(first);
        // The next lease is lost as well.
        let mut third = members[0].wait_to_rejoin();
        assert!(!third.begin_join());
    }

    #[tokio::test]
    async fn another_loop_joins_if_the_first_one_ends() {
        let [mut one, mut two, mut three] = LoopGroup::members(3).try_into().expect("three loops");
        three.end();
        let mut first = one.wait_to_rejoin();
        let mut second = two.wait_to_rejoin();
        assert_eq!(second.turn().await, RejoinTurn::Lead);
        drop(second);
        // A loop that ends has no sessions, but it has to say so.
        assert!(!first.begin_join());
        assert!(!two.end());
        assert_eq!(first.turn().await, RejoinTurn::Lead);
        drop(first);
        assert!(one.end());
    }
}
