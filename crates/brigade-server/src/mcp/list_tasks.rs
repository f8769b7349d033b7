//! The tasks of the workspace.

use brigade_delegation::list_tasks::TASKS_PER_PAGE;
use brigade_delegation::{ListTasks, ListTasksReply, TaskFilter};
use brigade_model::refusal::Refusal;

use super::summary::{summarize_task, to_task_notes};
use super::tool_call::{ClientDelegationTool, LISTED_TASKS_MAX, McpCallContext, McpToolReply};
use crate::task_info::TaskInfo;

impl ClientDelegationTool for ListTasks {
    async fn run(self, call: &McpCallContext) -> Result<McpToolReply, Refusal> {
        let ended = self.state.is_some_and(TaskFilter::includes_ended);
        let mut tasks = call.list_tasks(ended).await?;
        let all_seen = tasks.len() < LISTED_TASKS_MAX;
        tasks
            .retain(|info| self.state.is_none_or(|filter| filter.matches(&info.state, info.alive)));
        let total = tasks.len();
        if let Some(before) = self.parse_cursor()? {
            tasks.retain(|info| task_number(info).is_some_and(|number| number < before));
        }
        let older = tasks.len().saturating_sub(TASKS_PER_PAGE);
        let shown = tasks.split_off(older);
        // Only looked at: wait_tasks takes them.
        let notes = to_task_notes(call.read_notes(false).await);
        let tasks = shown.iter().map(|info| summarize_task(call, info)).collect();
        let (audience, filter) = (call.audience(), self.state);
        let mut reply = ListTasksReply {
            audience,
            tasks,
            total_count: total,
            older_count: older,
            filter,
            notes,
        }
        .render();
        if !all_seen {
            reply.add_guidance([format!(
                "Only the newest {LISTED_TASKS_MAX} tasks were looked at."
            )]);
        }
        Ok(McpToolReply::Reply(reply))
    }
}

/// The number of a task, as its address has it.
fn task_number(info: &TaskInfo) -> Option<u32> {
    info.address.rsplit(':').next()?.parse().ok()
}
