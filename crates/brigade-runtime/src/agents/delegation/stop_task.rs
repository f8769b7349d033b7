//! Stops a task and its descendants.

use brigade_agent::{ToolEffect, ToolError, ToolInvocation, ToolReply};
use brigade_delegation::StopTask;
use brigade_model::command::{Command, StopCommand, StopTarget};
use brigade_model::decide::CommandReply;

use super::{AgentDelegationTool, DelegationContext};

impl AgentDelegationTool for StopTask {
    const EFFECT: ToolEffect = ToolEffect::Idempotent;

    async fn run(
        self,
        delegate: &DelegationContext,
        _call: &ToolInvocation,
    ) -> Result<ToolReply, ToolError> {
        let target = match self.task.as_str() {
            "self" => StopTarget::Itself,
            task => StopTarget::Task(delegate.link.find_child(task).await?.no.into()),
        };
        let stop = StopCommand {
            caller: delegate.link.caller(),
            target,
            reason: self.reason.map(Into::into),
            grace: None,
            call: None,
        };
        match delegate.link.submit(Command::Stop(stop)).await? {
            CommandReply::Stopped(stopped) if stopped.tasks == 0 => {
                Ok(ToolReply::text(format!("{} had ended before.", self.task)))
            }
            CommandReply::Stopped(stopped) => {
                let many = if stopped.tasks == 1 { "task is" } else { "tasks are" };
                Ok(ToolReply::text(format!("{} {many} being stopped.", stopped.tasks)))
            }
            _ => Err(crate::session::unexpected_reply().into()),
        }
    }
}
