//! The tasks of the workspace.

use brigade_delegation::list_tasks::PAGE;
use brigade_delegation::{ListReply, ListTasks, TaskFilter};
use brigade_model::refusal::Refusal;

use super::summary::{notes, summary};
use super::tool::{Answer, Call, LOOKED_THROUGH, Tool};
use crate::info::TaskInfo;

impl Tool for ListTasks {
    async fn run(self, call: &Call) -> Result<Answer, Refusal> {
        let ended = self.state.is_some_and(TaskFilter::includes_ended);
        let mut tasks = call.list(ended).await?;
        let all_seen = tasks.len() < LOOKED_THROUGH;
        tasks.retain(|info| self.state.is_none_or(|filter| filter.fits(&info.state, info.living)));
        let total = tasks.len();
        if let Some(before) = self.before()? {
            tasks.retain(|info| number(info).is_some_and(|number| number < before));
        }
        let older = tasks.len().saturating_sub(PAGE);
        let shown = tasks.split_off(older);
        // Only looked at: wait_tasks takes them.
        let notes = notes(call.notes(false).await);
        let tasks = shown.iter().map(|info| summary(call, info)).collect();
        let (audience, filter) = (call.audience(), self.state);
        let mut reply = ListReply { audience, tasks, total, older, filter, notes }.render();
        if !all_seen {
            reply.add_guidance([format!("Only the newest {LOOKED_THROUGH} tasks were looked at.")]);
        }
        Ok(Answer::Said(reply))
    }
}

/// The number of a task, as its address has it.
fn number(info: &TaskInfo) -> Option<u32> {
    info.address.rsplit(':').next()?.parse().ok()
}
