//! The running limit that all sessions of a runtime share.
//!
//! The loop counts the tasks that hold a slot in each session. Before a session decides, the loop
//! tells it how many tasks may start. A freed slot goes to the session that has waited longest
//! since its last turn, so that a session with many queued tasks does not delay the others.

use std::collections::BTreeMap;

use brigade_model::command::Command;
use brigade_model::id_map::IdMap;
use brigade_model::ids::{SessionId, Time};
use brigade_model::task_tree::TaskTree;

use crate::commit::Decided;
use crate::supervisor::Supervisor;

/// The slots of a runtime: the running tasks of its sessions, and the sessions that queue.
#[derive(Debug, Default)]
pub(crate) struct RunningSlots {
    max: Option<u32>,
    /// True while nothing that queues may start: during recovery and shutdown.
    is_paused: bool,
    counts: IdMap<SessionId, SessionCounts>,
    total_running: u32,
    /// The sessions with tasks that queue for the runtime, by their turn.
    turns: BTreeMap<u64, SessionId>,
    last_turn: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct SessionCounts {
    running: u32,
    queued: usize,
    turn: Option<u64>,
}

/// The number of tasks that a session may start. `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotGrant {
    pub(crate) session: SessionId,
    pub(crate) starts: Option<u32>,
}

impl RunningSlots {
    /// Creates the slots of a runtime that is about to recover its sessions.
    pub(crate) fn paused(max: Option<u32>) -> Self {
        Self { max, is_paused: true, ..Self::default() }
    }

    pub(crate) fn pause(&mut self) {
        self.is_paused = true;
    }

    pub(crate) fn unpause(&mut self) {
        self.is_paused = false;
    }

    pub(crate) fn total_running(&self) -> u32 {
        self.total_running
    }

    /// Returns the number of tasks that may start while a session decides a command. While any
    /// session queues, slots are granted only by turns.
    pub(crate) fn starts_for(&self, tree: &TaskTree) -> Option<u32> {
        if self.is_paused {
            return (self.max.is_some() || tree.runtime_queue_len() > 0).then_some(0);
        }
        self.max.map(|_| if self.turns.is_empty() { self.free() } else { 0 })
    }

    /// Counts a session again, after it was loaded or has decided.
    pub(crate) fn observe(&mut self, tree: &TaskTree) {
        let session = tree.id();
        let counts = self.counts.entry(session).or_default();
        let running = tree.running_count();
        self.total_running = self.total_running.saturating_sub(counts.running) + running;
        counts.running = running;
        counts.queued = tree.runtime_queue_len();
        match (counts.queued > 0, counts.turn) {
            (true, None) => self.take_turn(session),
            (false, Some(_)) => self.end_turn(session),
            _ => {}
        }
        if running == 0 && tree.runtime_queue_len() == 0 {
            self.counts.remove(&session);
        }
    }

    /// Removes a session that runs nothing here any more.
    pub(crate) fn forget(&mut self, session: SessionId) {
        self.end_turn(session);
        if let Some(counts) = self.counts.remove(&session) {
            self.total_running = self.total_running.saturating_sub(counts.running);
        }
    }

    /// Returns whether a session queues although a slot is free.
    pub(crate) fn can_grant(&self) -> bool {
        self.next_grant().is_some()
    }

    /// Returns the next grant. Sessions take turns with one slot each; a session that queues alone
    /// gets all free slots.
    pub(crate) fn next_grant(&self) -> Option<SlotGrant> {
        let session = *self.turns.values().next().filter(|_| !self.is_paused)?;
        let free = self.free();
        let starts = if self.turns.len() == 1 { free } else { free.min(1) };
        (starts > 0).then_some(SlotGrant { session, starts: Some(starts) })
    }

    /// Puts a session that has had its turn behind the others.
    fn pass_turn(&mut self, session: SessionId) {
        self.end_turn(session);
        if self.queued(session) > 0 {
            self.take_turn(session);
        }
    }

    fn take_turn(&mut self, session: SessionId) {
        self.last_turn += 1;
        self.turns.insert(self.last_turn, session);
        if let Some(counts) = self.counts.get_mut(&session) {
            counts.turn = Some(self.last_turn);
        }
    }

    /// Takes a session out of the turns, until it is observed again.
    fn end_turn(&mut self, session: SessionId) {
        let turn = self.counts.get_mut(&session).and_then(|counts| counts.turn.take());
        if let Some(turn) = turn {
            self.turns.remove(&turn);
        }
    }

    fn queued(&self, session: SessionId) -> usize {
        self.counts.get(&session).map_or(0, |counts| counts.queued)
    }

    fn free(&self) -> u32 {
        self.max.map_or(u32::MAX, |max| max.saturating_sub(self.total_running))
    }
}

impl Supervisor {
    /// Grants the free slots of the runtime to the sessions that queue for them.
    pub(crate) async fn grant_running_slots(&mut self, now: Time, decided: &mut Decided) {
        while let Some(grant) = self.slots.next_grant() {
            let id = grant.session;
            let queued_before = self.slots.queued(id);
            let done = self.decide_granted(grant, (&Command::Sweep).into(), now, decided).await;
            if done.is_ok() && self.slots.queued(id) < queued_before {
                self.slots.pass_turn(id);
            } else {
                self.slots.end_turn(id);
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

    #[test]
    fn a_paused_runtime_without_a_limit_holds_back_only_what_queues() {
        let mut slots = RunningSlots::paused(None);
        assert_eq!(slots.starts_for(&session()), None);
        slots.unpause();
        assert_eq!(slots.starts_for(&session()), None);
        assert!(!slots.can_grant());
    }

    #[test]
    fn a_paused_runtime_with_a_limit_starts_nothing() {
        let mut slots = RunningSlots::paused(Some(2));
        assert_eq!(slots.starts_for(&session()), Some(0));
        slots.unpause();
        assert_eq!(slots.starts_for(&session()), Some(2));
    }
}
