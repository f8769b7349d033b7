//! The last step of a turn: what was stored is done.

use brigade_model::action::Action;
use brigade_model::ids::{Attempt, TreeId};
use brigade_model::tree::SessionState;

use crate::commit::Acknowledged;
use crate::jobs::ClosureBody;
use crate::performer::{Reporter, TaskId};
use crate::supervisor::Supervisor;

/// How many sessions may be in memory without a task in it.
const IDLE_TREES: usize = 1024;

impl Supervisor {
    pub(crate) fn perform(&mut self, done: Acknowledged) {
        for (tree, no) in done.ended {
            self.waiters.ended(tree, no);
        }
        for (tree, action) in done.actions {
            self.perform_one(tree, action);
        }
        for id in done.touched {
            self.tidy(id);
        }
    }

    /// Lets go of what nobody needs in memory.
    fn tidy(&mut self, id: TreeId) {
        let Some(tree) = self.trees.get_mut(&id) else { return };
        let gone = tree.evict();
        if let Some(view) = self.views.get(&id) {
            view.forget(&gone);
        }
        self.timers.set(id, tree.next_due());
        if tree.has_sweep() {
            self.sweeping.push(id);
        }
        let idle = tree.loaded() == 0;
        let over = tree.row().state == SessionState::Closed;
        if idle && (over || self.trees.len() > IDLE_TREES) && !self.waiters.waits_in(id) {
            self.trees.remove(&id);
            self.views.remove(&id);
        }
    }

    pub(crate) fn perform_one(&self, id: TreeId, action: Action) {
        let Some(row) = self.trees.get(&id).and_then(|tree| tree.get(action.task())) else {
            return;
        };
        if let (Action::Forget { .. }, Some(held)) = (&action, &row.spec.attachment) {
            // The row outlives the task; what a closure that never ran holds must not.
            ClosureBody::let_go(held);
        }
        let task = TaskId { tree: id, no: action.task() };
        let attempt = match &action {
            Action::Start(start) => start.attempt,
            Action::Tell { attempt, .. }
            | Action::Push { attempt, .. }
            | Action::Interrupt { attempt, .. }
            | Action::Stop { attempt, .. }
            | Action::Kill { attempt, .. } => *attempt,
            Action::Forget { .. } => Attempt(0),
        };
        let reporter = Reporter { task, attempt, inputs: self.sender.clone() };
        self.performers.perform(&row.spec.work.kind(), action, reporter);
    }
}
