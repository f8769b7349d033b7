//! `list_tasks` for clients: lists the tasks of the workspace.

use brigade_delegation::list_tasks::TASKS_PER_PAGE;
use brigade_delegation::{ListTasks, ListTasksReply, TaskFilter};
use brigade_model::refusal::Refusal;

use super::summary::{summarize_task, to_task_notes};
use super::tool_call::{ClientDelegationTool, LISTED_TASKS_MAX, McpCallContext, McpToolReply};
use brigade_protocol::RequestClient;
use brigade_protocol::task_info::TaskInfo;

impl ClientDelegationTool for ListTasks {
    async fn run<C: RequestClient>(
        self,
        call: &McpCallContext<C>,
    ) -> Result<McpToolReply, Refusal> {
        let mut tasks = match self.state.is_some_and(TaskFilter::includes_ended) {
            true => call.list_all_tasks().await?,
            false => call.list_tasks().await?,
        };
        let is_complete = tasks.len() < LISTED_TASKS_MAX;
        tasks
            .retain(|info| self.state.is_none_or(|filter| filter.matches(&info.state, info.alive)));
        let total_count = tasks.len();
        if let Some(before) = self.parse_cursor()? {
            tasks.retain(|info| task_number(info).is_some_and(|number| number < before));
        }
        let older_count = tasks.len().saturating_sub(TASKS_PER_PAGE);
        let shown = tasks.split_off(older_count);
        let reply = ListTasksReply {
            audience: call.audience(),
            tasks: shown.iter().map(|info| summarize_task(call, info)).collect(),
            total_count,
            older_count,
            filter: self.state,
            // Only `wait_tasks` marks them as read.
            notes: to_task_notes(call.read_notes().await),
        };
        let mut reply = reply.render();
        if !is_complete {
            reply.add_guidance([format!(
                "Only the newest {LISTED_TASKS_MAX} tasks were looked at."
            )]);
        }
        Ok(McpToolReply::Reply(reply))
    }
}

/// Returns the number in the address of a task.
fn task_number(info: &TaskInfo) -> Option<u32> {
    info.address.rsplit(':').next()?.parse().ok()
}
