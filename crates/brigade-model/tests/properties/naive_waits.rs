//! The conditions of parked calls, as the rules say.

use brigade_model::call::{Condition, TasksCondition, WaitMode};
use brigade_model::ids::{Owner, TaskNo};
use brigade_model::task::TaskRow;

use crate::naive::Naive;
use crate::rows::is_alive;

impl Naive<'_> {
    /// Returns whether something other than the clock should have completed this call.
    pub(crate) fn is_condition_met(self, no: TaskNo, condition: &Condition) -> bool {
        let has_message = self.all.inbox(Owner::Task(no)).next().is_some();
        match condition {
            Condition::Message { name: None, .. } | Condition::Messages => has_message,
            Condition::Message { name, .. } => {
                self.all.inbox(Owner::Task(no)).any(|message| message.name == *name)
            }
            Condition::Inbox => self.has_inbox_items(no),
            Condition::Approval { request, .. } => self.is_decided(no, request),
            Condition::Tasks(wait) => wait.interruptible && has_message || self.is_wait_over(wait),
            _ => false,
        }
    }

    pub(crate) fn is_wait_over(self, wait: &TasksCondition) -> bool {
        if !wait.until_ready {
            return self.ended_enough(&wait.tasks, wait.mode);
        }
        let row = |no: &TaskNo| self.row(*no).expect("an awaited task exists");
        let mut rows = wait.tasks.iter().map(row);
        let is_ready = |row: &TaskRow| row.ready_at().is_some();
        match wait.mode {
            WaitMode::Any => rows.any(|row| is_ready(row) || !is_alive(row)),
            WaitMode::All => {
                rows.clone().all(is_ready) || rows.any(|row| !is_ready(row) && !is_alive(row))
            }
        }
    }

    pub(crate) fn ended_enough(self, tasks: &[TaskNo], mode: WaitMode) -> bool {
        let mut ended = tasks.iter().map(|no| self.row(*no).is_some_and(|row| !is_alive(row)));
        match mode {
            WaitMode::Any => tasks.is_empty() || ended.any(|ended| ended),
            WaitMode::All => ended.all(|ended| ended),
        }
    }
}
