//! Lists the tasks that the agent started.

use brigade_agent::{ToolEffect, ToolError, ToolInvocation, ToolReply};
use brigade_delegation::list_tasks::TASKS_PER_PAGE;
use brigade_delegation::{Audience, ListTasks, ListTasksReply};
use brigade_model::task::StoredTask;
use brigade_store::TaskQuery;

use super::summary::summarize_task;
use super::{AgentDelegationTool, DelegationContext};

impl AgentDelegationTool for ListTasks {
    const EFFECT: ToolEffect = ToolEffect::Pure;

    async fn run(
        self,
        delegate: &DelegationContext,
        _call: &ToolInvocation,
    ) -> Result<ToolReply, ToolError> {
        let session = delegate.link.session().await?;
        let query = TaskQuery::default();
        let mut tasks = delegate.link.retry_while_unavailable(|| session.history(&query)).await?;
        tasks.retain(|StoredTask { row, .. }| {
            self.state.is_none_or(|filter| filter.matches(row.state.label(), row.is_alive()))
        });
        let total = tasks.len();
        if let Some(before) = self.parse_cursor()? {
            tasks.retain(|task| task.no.get() < before);
        }
        let older = tasks.len().saturating_sub(TASKS_PER_PAGE);
        let now = delegate.agents.now();
        let tasks = tasks.split_off(older);
        let tasks = tasks.iter().map(|task| summarize_task(task.no, &task.row, now)).collect();
        let reply = ListTasksReply {
            audience: Audience::Agent,
            tasks,
            total_count: total,
            older_count: older,
            filter: self.state,
            notes: Vec::new(),
        };
        Ok(ToolReply::text(reply.render().text()))
    }
}
