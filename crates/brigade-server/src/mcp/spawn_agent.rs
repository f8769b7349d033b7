//! Starts a sub-agent that outlives whoever asked for it.

use brigade_agent::permission::Rules;
use brigade_delegation::{BackgroundReason, Budget, SpawnAgent};
use brigade_model::call::WaitMode;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;

use super::run_process::{directory, ended_answer, in_background};
use super::tasks;
use super::tool::{Answer, Call, Tool};
use crate::requests::Run;

impl Tool for SpawnAgent {
    async fn run(self, call: &Call) -> Result<Answer, Refusal> {
        // All that is wrong is said before anything is started.
        let run = request(&self, call)?;
        let wait = self.wait(call.client)?;
        let started = call.line.ask(|| run.clone()).await?;
        let Some(wait) = wait else {
            return in_background(call, &started, BackgroundReason::Asked).await;
        };
        // A task of the protocol asks the user for approvals. Where that is not possible the answer says
        // what the user has to do. A question is for the model, at once.
        let as_task = call.knows_tasks && call.can_be_asked;
        let patience = if as_task { tasks::AT_ONCE.min(wait) } else { wait };
        let address = call.address(&started.task);
        let mut waited = call.wait(&[address], WaitMode::All, patience).await?;
        match waited.ended.pop() {
            Some(ended) => ended_answer(call, &ended).await,
            None if as_task && (waited.timed_out || !waited.pending.is_empty()) => {
                Ok(Answer::Task(Box::new(started.task)))
            }
            None if waited.timed_out => {
                in_background(call, &started, BackgroundReason::Slow(patience)).await
            }
            None => in_background(call, &started, BackgroundReason::InputRequired).await,
        }
    }
}

fn request(asked: &SpawnAgent, call: &Call) -> Result<Run, Refusal> {
    asked.check()?;
    let limits = asked.budget.map(Budget::limits).transpose()?;
    Ok(Run {
        name: asked.name.clone(),
        key: Some(asked.key.clone().unwrap_or_else(|| call.key.clone())),
        agent: asked.agent.clone(),
        model: asked.model.clone(),
        config: asked.config.as_ref().map(Json::of).transpose()?,
        result_schema: asked.result_schema.as_ref().map(Json::of).transpose()?,
        cwd: Some(directory(&call.options.directory, None)?),
        limits: limits.map_or_else(Box::default, Box::new),
        permissions: Rules {
            ask: call.options.ask.clone(),
            ..Run::usual_permissions(call.options.allow.iter().cloned())
        },
        keep: asked.keep,
        ..Run::new(&call.options.session, &asked.task)
    })
}
