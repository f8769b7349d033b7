//! Stops a task and everything below it.

use brigade_agent::{Call, Effect, Outcome, ToolError};
use brigade_delegation::StopTask;
use brigade_model::command::{Command, Stop, StopTarget};
use brigade_model::decide::Reply;

use super::{Delegate, Delegation};

impl Delegation for StopTask {
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(self, delegate: &Delegate, _call: &Call) -> Result<Outcome, ToolError> {
        let target = match self.task.as_str() {
            "self" => StopTarget::Itself,
            task => StopTarget::Task(delegate.link.child(task).await?.0.into()),
        };
        let stop = Stop {
            caller: delegate.link.caller(),
            target,
            reason: self.reason.map(Into::into),
            grace: None,
            call: None,
        };
        match delegate.link.submit(Command::Stop(stop)).await? {
            Reply::Stopped(stopped) if stopped.tasks == 0 => {
                Ok(Outcome::text(format!("{} had ended before.", self.task)))
            }
            Reply::Stopped(stopped) => {
                let many = if stopped.tasks == 1 { "task is" } else { "tasks are" };
                Ok(Outcome::text(format!("{} {many} being stopped.", stopped.tasks)))
            }
            _ => Err(crate::session::unexpected().into()),
        }
    }
}
