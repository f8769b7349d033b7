//! Starts a sub-agent.

use brigade_agent::{OutlivingWork, ToolEffect, ToolError, ToolInvocation, ToolReply, ToolSubject};
use brigade_delegation::SpawnAgent;
use brigade_delegation::background_task::render_started;
use brigade_model::call::{ConditionRequest, WaitMode};
use brigade_model::refusal::Refusal;

use super::{AgentDelegationTool, DelegationContext, wait_tasks};
use crate::agents::resolve::GENERAL_DEFINITION;
use crate::agents::task_link::expect_spawned;
use crate::new_task::NewTask;

impl AgentDelegationTool for SpawnAgent {
    const EFFECT: ToolEffect = ToolEffect::Recorded;

    fn subject(&self, _directory: Option<&str>) -> ToolSubject {
        ToolSubject::Text(self.agent.clone().unwrap_or_else(|| GENERAL_DEFINITION.to_owned()))
    }

    fn outliving(&self) -> OutlivingWork {
        if self.keep { OutlivingWork::Agent } else { OutlivingWork::Nothing }
    }

    async fn run(
        self,
        delegate: &DelegationContext,
        call: &ToolInvocation,
    ) -> Result<ToolReply, ToolError> {
        self.check()?;
        let record = (call.slot_range.effect(), call.effect.as_ref());
        let effect = delegate
            .link
            .spawn(record, || {
                let key = format!("call:{}", call.slot_range.effect());
                delegate.agents.child_spec(&delegate.blueprint, new_task(&self)?, &key)
            })
            .await?;
        let child = expect_spawned(&effect)?;
        let address = format!("{}:{}", child.kind, child.no);
        match &call.completion {
            Some(told) => wait_tasks::render_completion(delegate, told, &[child.no]).await,
            None if self.wait => {
                let (tasks, mode) = (vec![child.no], WaitMode::All);
                let asked =
                    ConditionRequest::Tasks { tasks, mode, timeout: None, interruptible: true };
                Ok(ToolReply::Park { asked, effect: Some(effect.clone()) })
            }
            None => Ok(ToolReply::text(render_started(&address, child.existing).text())),
        }
    }
}

fn new_task(asked: &SpawnAgent) -> Result<NewTask, Refusal> {
    let mut task = NewTask::agent(&asked.task);
    if let Some(name) = &asked.name {
        task = task.name(name);
    }
    if let Some(agent) = &asked.agent {
        task = task.definition(agent);
    }
    if let Some(config) = &asked.config {
        task = task.config(config);
    }
    if let Some(schema) = &asked.result_schema {
        task = task.result_schema(schema);
    }
    if let Some(key) = &asked.key {
        task = task.key(key);
    }
    if let Some(budget) = asked.budget {
        task = task.limits(budget.to_limits()?);
    }
    Ok(if asked.keep { task.keep() } else { task })
}
