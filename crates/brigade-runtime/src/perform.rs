//! The last step of a turn: performing the actions of a committed batch.

use brigade_model::action::Action;
use brigade_model::ids::{Attempt, SessionId};
use brigade_model::task_tree::SessionState;

use crate::commit::Acknowledged;
use crate::jobs::ClosureBody;
use crate::performer::TaskId;
use crate::supervisor::Supervisor;

/// The largest number of sessions in memory without a loaded task.
const IDLE_SESSIONS_MAX: usize = 1024;

impl Supervisor {
    pub(crate) fn perform(&mut self, done: Acknowledged) {
        if self.owned.as_ref().is_some_and(|owned| !owned.node.lease.is_held()) {
            // Whoever owns the sessions next performs the actions.
            return;
        }
        for (session, no) in done.ended_tasks {
            self.waiters.task_ended(session, no);
            #[cfg(feature = "processes")]
            self.release_worktree(TaskId { session, no });
        }
        for (session, action) in done.actions {
            self.perform_action(session, action);
        }
        for id in done.touched_sessions {
            self.evict_idle(id);
            self.observe_rest(id);
        }
    }

    /// Releases the worktree of a task that has ended, if it has one.
    #[cfg(feature = "processes")]
    fn release_worktree(&self, task: TaskId) {
        let row = self.trees.get(&task.session).and_then(|tree| tree.get(task.no));
        if row.is_some_and(|row| row.spec.has_worktree()) {
            self.start_worktree_release(task);
        }
    }

    #[cfg(feature = "processes")]
    pub(crate) fn start_worktree_release(&self, task: TaskId) {
        let Some(processes) = &self.processes else { return };
        let reporter = self.reporter(task, Attempt(0));
        processes.release_worktree(self.store.clone(), reporter);
    }

    /// Evicts rows, and idle sessions, that nothing needs in memory.
    fn evict_idle(&mut self, id: SessionId) {
        let Some(tree) = self.trees.get_mut(&id) else { return };
        let evicted = tree.evict();
        if let Some(view) = self.views.get(&id) {
            view.evict(&evicted);
        }
        self.timers.set(id, tree.next_due());
        if tree.has_sweep() {
            self.sweeping_sessions.push(id);
        }
        let is_idle = tree.loaded_count() == 0;
        let is_closed = tree.row().state == SessionState::Closed;
        let may_evict = is_closed || self.trees.len() > IDLE_SESSIONS_MAX;
        // A node releases what it evicts.
        let may_evict = may_evict && self.owned.is_none();
        if is_idle && may_evict && !self.waiters.has_waits_in(id) {
            self.trees.remove(&id);
            self.views.remove(&id);
        }
    }

    pub(crate) fn perform_action(&self, id: SessionId, action: Action) {
        if self.owned.as_ref().is_some_and(|owned| !owned.node.lease.is_held()) {
            return;
        }
        let Some(row) = self.trees.get(&id).and_then(|tree| tree.get(action.task())) else {
            return;
        };
        if let (Action::Release { .. }, Some(attachment)) = (&action, &row.spec.attachment) {
            // The row outlives the task. A closure that never ran must not keep its captures alive.
            ClosureBody::drop_attachment(attachment);
        }
        let task = TaskId { session: id, no: action.task() };
        let attempt = match &action {
            Action::Start(start) => start.attempt,
            Action::DeliverCompletion { attempt, .. }
            | Action::Push { attempt, .. }
            | Action::Interrupt { attempt, .. }
            | Action::Stop { attempt, .. }
            | Action::Kill { attempt, .. } => *attempt,
            Action::Release { .. } => Attempt(0),
        };
        let reporter = self.reporter(task, attempt);
        #[cfg(feature = "processes")]
        if self.stop_at_host(row, &action, &reporter) || self.push_at_host(row, &action, &reporter)
        {
            return;
        }
        self.performers.perform(&row.spec.work.kind(), action, reporter);
    }
}
