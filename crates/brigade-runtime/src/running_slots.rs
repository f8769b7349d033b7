//! The running limit that all sessions of a runtime share.
//!
//! Each loop counts the tasks that hold a slot in each of its sessions. Before a session decides, its
//! loop tells it how many tasks may start. A freed slot goes to the session that has waited longest
//! since its last turn, so that a session with many queued tasks does not delay the others. Under a
//! limit, a loop holds the lock on the pool while a session decides, so the loops never start more
//! together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_model::command::Command;
use brigade_model::id_map::IdMap;
use brigade_model::ids::{SessionId, Time};
use brigade_model::task_tree::TaskTree;
use tokio::sync::Notify;

use crate::commit::Decided;
use crate::supervisor::Supervisor;

/// The slots as one loop sees them: the running tasks of its sessions, and the pool of all loops.
#[derive(Debug)]
pub(crate) struct RunningSlots {
    pool: Arc<SlotPool>,
    own: LoopSlots,
}

/// The slots of a runtime.
#[derive(Debug)]
pub(crate) struct SlotPool {
    max: Option<u32>,
    /// True while nothing that queues may start: during recovery and shutdown.
    is_paused: AtomicBool,
    state: Mutex<PoolState>,
    /// Notified when a loop may have a turn because of another one.
    turn_changed: Vec<Notify>,
}

#[derive(Debug, Default)]
struct PoolState {
    /// The running tasks of all loops, if there is a limit.
    running: u32,
    /// The sessions with tasks that queue for the runtime, by their turn.
    turns: BTreeMap<u64, QueuedSession>,
    last_turn: u64,
}

#[derive(Clone, Copy, Debug)]
struct QueuedSession {
    session: SessionId,
    loop_index: usize,
}

#[derive(Debug)]
struct LoopSlots {
    loop_index: usize,
    counts: IdMap<SessionId, SessionCounts>,
    running: u32,
    /// The number of sessions that have a turn.
    queued_sessions: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct SessionCounts {
    running: u32,
    queued: usize,
    turn: Option<u64>,
}

/// The reason for which a session decides, and so the slots that it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotUse {
    /// A command. While any session queues, it starts nothing.
    Command,
    /// The session has its turn.
    Turn,
}

/// A session that decides, and the slots that it may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRequest {
    pub(crate) session: SessionId,
    pub(crate) slot_use: SlotUse,
}

impl SlotPool {
    /// Creates the slots of a runtime that is about to recover its sessions.
    pub(crate) fn paused(max: Option<u32>, loops: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            is_paused: AtomicBool::new(true),
            state: Mutex::default(),
            turn_changed: (0..loops).map(|_| Notify::new()).collect(),
        })
    }

    pub(crate) fn unpause(&self) {
        self.is_paused.store(false, Ordering::Relaxed);
    }

    fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self, state: &PoolState) -> u32 {
        self.max.map_or(u32::MAX, |max| max.saturating_sub(state.running))
    }

    /// Returns the sessions that have a slot now: each of the first ones has one.
    fn next_turns<'a>(&self, state: &'a PoolState) -> impl Iterator<Item = &'a QueuedSession> {
        let free = if self.is_paused() { 0 } else { self.free(state) };
        state.turns.values().take(usize::try_from(free).unwrap_or(usize::MAX))
    }

    /// Wakes the other loops whose sessions have a slot now.
    fn wake_others(&self, state: &PoolState, loop_index: usize) {
        if self.turn_changed.len() == 1 || state.turns.is_empty() {
            return;
        }
        let mut woken = vec![false; self.turn_changed.len()];
        woken[loop_index] = true;
        for next in self.next_turns(state) {
            if !std::mem::replace(&mut woken[next.loop_index], true) {
                self.turn_changed[next.loop_index].notify_one();
            }
        }
    }
}

impl PoolState {
    fn take_turn(&mut self, queued: QueuedSession) -> u64 {
        self.last_turn += 1;
        self.turns.insert(self.last_turn, queued);
        self.last_turn
    }
}

impl RunningSlots {
    pub(crate) fn new(pool: Arc<SlotPool>, loop_index: usize) -> Self {
        let own =
            LoopSlots { loop_index, counts: IdMap::default(), running: 0, queued_sessions: 0 };
        Self { pool, own }
    }

    /// Lets nothing start that queues, in any loop.
    pub(crate) fn pause(&self) {
        self.pool.is_paused.store(true, Ordering::Relaxed);
    }

    /// Returns the number of running tasks of this loop.
    pub(crate) fn own_running(&self) -> u32 {
        self.own.running
    }

    /// Returns true if no task of this loop runs or will get a slot.
    pub(crate) fn is_idle(&self) -> bool {
        if self.own.running > 0 {
            return false;
        }
        self.own.queued_sessions == 0 || {
            let state = self.pool.lock();
            state.running == 0 && self.pool.next_turns(&state).next().is_none()
        }
    }

    /// Waits until another loop has changed the turns of this one.
    pub(crate) async fn turn_changed(&self) {
        match &self.pool.turn_changed[..] {
            [_] => std::future::pending().await,
            all => all[self.own.loop_index].notified().await,
        }
    }

    /// Lets a session decide with the slots that it may use, and counts it again.
    pub(crate) fn decide<T>(
        &mut self,
        tree: &mut TaskTree,
        slot_use: SlotUse,
        decide: impl FnOnce(&mut TaskTree) -> T,
    ) -> T {
        let Self { pool, own } = self;
        // Other loops must not use the same slots. Without a limit there is nothing to share.
        let mut held = pool.max.is_some().then(|| pool.lock());
        let starts = match slot_use {
            SlotUse::Command => command_starts(pool, held.as_deref(), tree),
            SlotUse::Turn => Some(match &held {
                Some(state) => own.turn_starts(pool, state, tree.id()),
                None => own.turn_starts(pool, &pool.lock(), tree.id()),
            }),
        };
        tree.allow_starts(starts);
        let decided = decide(tree);
        own.observe(pool, held.as_deref_mut(), tree);
        decided
    }

    /// Counts a session after it was loaded.
    pub(crate) fn observe(&mut self, tree: &TaskTree) {
        self.own.observe(&self.pool, None, tree);
    }

    /// Removes a session that runs nothing here any more.
    pub(crate) fn forget(&mut self, session: SessionId) {
        let Self { pool, own } = self;
        let mut state = pool.lock();
        own.end_turn(&mut state, session);
        if let Some(counts) = own.counts.remove(&session) {
            own.running = own.running.saturating_sub(counts.running);
            if pool.max.is_some() {
                state.running = state.running.saturating_sub(counts.running);
            }
        }
        pool.wake_others(&state, own.loop_index);
    }

    /// Returns whether a session of this loop has its turn.
    pub(crate) fn can_grant(&self) -> bool {
        self.next_grant().is_some()
    }

    /// Returns the next session of this loop that has its turn. Sessions take turns with one slot each; a
    /// session that queues alone gets all free slots.
    fn next_grant(&self) -> Option<SessionId> {
        if self.own.queued_sessions == 0 {
            return None;
        }
        let state = self.pool.lock();
        let mut turns = self.pool.next_turns(&state);
        turns.find(|next| next.loop_index == self.own.loop_index).map(|next| next.session)
    }

    /// Returns whether a session has its turn and a slot.
    fn has_slot(&self, session: SessionId) -> bool {
        let state = self.pool.lock();
        self.pool.next_turns(&state).any(|next| next.session == session)
    }

    /// Puts a session that has had its turn behind the others.
    fn pass_turn(&mut self, session: SessionId) {
        let Self { pool, own } = self;
        let mut state = pool.lock();
        own.end_turn(&mut state, session);
        if own.queued(session) > 0 {
            own.take_turn(&mut state, session);
        }
        pool.wake_others(&state, own.loop_index);
    }

    /// Takes a session out of the turns, until it is observed again.
    fn skip_turn(&mut self, session: SessionId) {
        let Self { pool, own } = self;
        let mut state = pool.lock();
        own.end_turn(&mut state, session);
        pool.wake_others(&state, own.loop_index);
    }
}

/// Returns the number of tasks that may start while a session decides a command; `None` is no limit.
fn command_starts(pool: &SlotPool, held: Option<&PoolState>, tree: &TaskTree) -> Option<u32> {
    if pool.is_paused() {
        return (held.is_some() || tree.runtime_queue_len() > 0).then_some(0);
    }
    held.map(|state| if state.turns.is_empty() { pool.free(state) } else { 0 })
}

impl LoopSlots {
    /// Returns the number of tasks that a session may start in its turn.
    fn turn_starts(&self, pool: &SlotPool, state: &PoolState, session: SessionId) -> u32 {
        match pool.next_turns(state).any(|next| next.session == session) {
            true if state.turns.len() == 1 => pool.free(state),
            true => 1,
            false => 0,
        }
    }

    fn observe(&mut self, pool: &SlotPool, held: Option<&mut PoolState>, tree: &TaskTree) {
        let session = tree.id();
        let counts = self.counts.entry(session).or_default();
        let running = tree.running_count();
        let before = std::mem::replace(&mut counts.running, running);
        counts.queued = tree.runtime_queue_len();
        let is_queued = counts.queued > 0;
        let has_turn = counts.turn.is_some();
        self.running = self.running.saturating_sub(before) + running;
        if (before != running && pool.max.is_some()) || is_queued != has_turn {
            let mut locked;
            let state = match held {
                Some(state) => state,
                None => {
                    locked = pool.lock();
                    &mut *locked
                }
            };
            if pool.max.is_some() {
                state.running = state.running.saturating_sub(before) + running;
            }
            match (is_queued, has_turn) {
                (true, false) => self.take_turn(state, session),
                (false, true) => self.end_turn(state, session),
                _ => {}
            }
            pool.wake_others(state, self.loop_index);
        }
        if running == 0 && !is_queued {
            self.counts.remove(&session);
        }
    }

    fn take_turn(&mut self, state: &mut PoolState, session: SessionId) {
        let Some(counts) = self.counts.get_mut(&session) else { return };
        let loop_index = self.loop_index;
        counts.turn = Some(state.take_turn(QueuedSession { session, loop_index }));
        self.queued_sessions += 1;
    }

    fn end_turn(&mut self, state: &mut PoolState, session: SessionId) {
        let turn = self.counts.get_mut(&session).and_then(|counts| counts.turn.take());
        if let Some(turn) = turn {
            state.turns.remove(&turn);
            self.queued_sessions -= 1;
        }
    }

    fn queued(&self, session: SessionId) -> usize {
        self.counts.get(&session).map_or(0, |counts| counts.queued)
    }
}

impl Supervisor {
    /// Grants the free slots of the runtime to the sessions that queue for them.
    pub(crate) async fn grant_running_slots(&mut self, now: Time, decided: &mut Decided) {
        while let Some(id) = self.slots.next_grant() {
            let queued_before = self.slots.own.queued(id);
            let request = SlotRequest { session: id, slot_use: SlotUse::Turn };
            let sweep = (&Command::Sweep).into();
            let done = self.decide_with_slots(request, sweep, now, decided).await;
            if done.is_ok() && self.slots.own.queued(id) < queued_before {
                self.slots.pass_turn(id);
            } else if self.slots.has_slot(id) {
                self.slots.skip_turn(id);
                self.retry_later(id, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use brigade_model::ids::Epoch;
    use brigade_model::limits::Limits;
    use brigade_model::transition::{SessionOpening, open_session};

    use super::*;

    fn session() -> TaskTree {
        let name = "kitchen".parse().expect("a name");
        let limits = Limits::default();
        let id = crate::ids::new_session_id();
        open_session(SessionOpening { id, name, limits, at: Time(1), epoch: Epoch(1) }).0
    }

    fn starts(pool: &SlotPool) -> Option<u32> {
        command_starts(pool, pool.max.map(|_| pool.lock()).as_deref(), &session())
    }

    #[test]
    fn a_paused_runtime_without_a_limit_holds_back_only_what_queues() {
        let pool = SlotPool::paused(None, 1);
        let slots = RunningSlots::new(pool.clone(), 0);
        assert_eq!(starts(&pool), None);
        pool.unpause();
        assert_eq!(starts(&pool), None);
        assert!(!slots.can_grant());
    }

    #[test]
    fn a_paused_runtime_with_a_limit_starts_nothing() {
        let pool = SlotPool::paused(Some(2), 1);
        assert_eq!(starts(&pool), Some(0));
        pool.unpause();
        assert_eq!(starts(&pool), Some(2));
    }
}
