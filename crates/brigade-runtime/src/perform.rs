//! The last step of a turn: what was stored is done.

use brigade_model::action::Action;
use brigade_model::ids::{Attempt, SessionId};
use brigade_model::task_tree::SessionState;

use crate::commit::Acknowledged;
use crate::jobs::ClosureBody;
use crate::performer::{Reporter, TaskId};
use crate::supervisor::Supervisor;

/// How many sessions may be in memory without a task in it.
const IDLE_SESSIONS_MAX: usize = 1024;

impl Supervisor {
    pub(crate) fn perform(&mut self, done: Acknowledged) {
        for (tree, no) in done.ended_tasks {
            self.waiters.task_ended(tree, no);
        }
        for (tree, action) in done.actions {
            self.perform_action(tree, action);
        }
        for id in done.touched_sessions {
            self.evict_idle(id);
        }
    }

    /// Lets go of what nobody needs in memory.
    fn evict_idle(&mut self, id: SessionId) {
        let Some(tree) = self.trees.get_mut(&id) else { return };
        let gone = tree.evict();
        if let Some(view) = self.views.get(&id) {
            view.evict(&gone);
        }
        self.timers.set(id, tree.next_due());
        if tree.has_sweep() {
            self.sweeping_sessions.push(id);
        }
        let idle = tree.loaded_count() == 0;
        let over = tree.row().state == SessionState::Closed;
        if idle && (over || self.trees.len() > IDLE_SESSIONS_MAX) && !self.waiters.has_waits_in(id)
        {
            self.trees.remove(&id);
            self.views.remove(&id);
        }
    }

    pub(crate) fn perform_action(&self, id: SessionId, action: Action) {
        let Some(row) = self.trees.get(&id).and_then(|tree| tree.get(action.task())) else {
            return;
        };
        if let (Action::Release { .. }, Some(held)) = (&action, &row.spec.attachment) {
            // The row outlives the task; what a closure that never ran holds must not.
            ClosureBody::drop_attachment(held);
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
        let reporter = Reporter { task, attempt, inputs: self.sender.clone() };
        self.performers.perform(&row.spec.work.kind(), action, reporter);
    }
}
