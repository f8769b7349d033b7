//! Stops of tasks by the caller of a session.

use std::time::Duration;

use brigade_model::address::TaskRef;
use brigade_model::command::{Command, StopCommand, StopTarget};
use brigade_model::decide::{CommandReply, StopResult};
use brigade_model::ids::TaskNo;
use brigade_model::refusal::{Refusal, RefusalKind};

use crate::session::{SUBMITTED_MAX, Session, unexpected_reply};

impl Session {
    /// Stops a task and its descendants. Returns when the stop has begun, not when the task has
    /// ended.
    pub async fn stop(
        &self,
        task: impl Into<TaskRef>,
        reason: Option<&str>,
    ) -> Result<StopResult, Refusal> {
        self.stop_with(StopTarget::Task(task.into()), reason, None).await
    }

    /// Stops all top-level tasks, many of them in slices. Counts those that were there at the call. If
    /// the call is dropped, only some of them may have been stopped.
    pub async fn stop_all(&self, reason: Option<&str>) -> Result<StopResult, Refusal> {
        self.stop_with(StopTarget::Children, reason, None).await
    }

    /// Stops with another grace period than the tasks' own.
    pub async fn stop_with(
        &self,
        target: StopTarget,
        reason: Option<&str>,
        grace: Option<Duration>,
    ) -> Result<StopResult, Refusal> {
        let stop = StopCommand {
            caller: self.caller.clone(),
            target,
            reason: reason.map(Into::into),
            grace: grace.map(Into::into),
            call: None,
        };
        let earlier = match stop.target {
            StopTarget::Children => self.stop_many_children(&stop).await?,
            StopTarget::Task(_) | StopTarget::Itself => None,
        };
        let stopped = stop_result(self.submit(Command::Stop(stop)).await?)?;
        Ok(earlier.unwrap_or(stopped))
    }

    /// Stops the children in slices if they are many, so that other sessions do not wait for all of
    /// them. The command for all children then finds only those that were spawned meanwhile.
    async fn stop_many_children(&self, stop: &StopCommand) -> Result<Option<StopResult>, Refusal> {
        let children = self.view.list(Some(self.caller.owner()));
        let alive: Vec<TaskNo> =
            children.into_iter().filter(|task| task.row.is_alive()).map(|task| task.no).collect();
        if alive.len() <= SUBMITTED_MAX {
            return Ok(None);
        }
        let mut total = StopResult { tasks: 0, already_stopped: true };
        for slice in alive.chunks(SUBMITTED_MAX) {
            let commands = slice.iter().map(|no| {
                let target = StopTarget::Task(TaskRef::from(*no));
                Ok(Command::Stop(StopCommand { target, ..stop.clone() }))
            });
            for reply in self.submit_slice(commands.collect()).await? {
                match reply {
                    Ok(reply) => {
                        let stopped = stop_result(reply)?;
                        total.tasks += stopped.tasks;
                        total.already_stopped &= stopped.already_stopped;
                    }
                    // It has left memory meanwhile, or this caller may not stop it.
                    Err(refusal) if is_out_of_reach(&refusal) => {}
                    Err(refusal) => return Err(refusal),
                }
            }
        }
        Ok(Some(total))
    }
}

fn stop_result(reply: CommandReply) -> Result<StopResult, Refusal> {
    match reply {
        CommandReply::Stopped(stopped) => Ok(stopped),
        _ => Err(unexpected_reply()),
    }
}

fn is_out_of_reach(refusal: &Refusal) -> bool {
    matches!(refusal.kind, RefusalKind::NotFound | RefusalKind::Ended | RefusalKind::Forbidden)
}
