//! Stops a task and everything below it.

use brigade_agent::{Call, Effect, Hints, Outcome, ToolError};
use brigade_model::command::{Command, Stop, StopTarget};
use brigade_model::decide::Reply;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Delegate, Delegation};

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopTask {
    /// An address or name of a task that you started, or `self`.
    task: String,
    /// Why, for whoever looks at it later.
    #[serde(default)]
    reason: Option<String>,
}

impl Delegation for StopTask {
    const NAME: &'static str = "stop_task";
    const DESCRIPTION: &'static str = "Stop a task that you started and everything below it: kindly \
        first, by force after a grace period. `self` stops you and all that you started. Use it for \
        work that is no longer needed or has gone wrong. Not for a task that is just slow: what it did \
        is lost.";
    const HINTS: Hints = Hints { destructive: true, ..Hints::of(Effect::Idempotent) };

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
