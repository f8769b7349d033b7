//! Starts a sub-agent.

use brigade_agent::{OutlivingWork, ToolEffect, ToolError, ToolInvocation, ToolReply, ToolSubject};
use brigade_delegation::SpawnAgent;
use brigade_delegation::background_task::render_started;
use brigade_model::call::{ConditionRequest, WaitMode};
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;

use super::{AgentDelegationTool, DelegationContext, wait_tasks};
use crate::agents::resolve::GENERAL_DEFINITION;
use crate::agents::task_link::{CallSlot, expect_spawned};
use crate::new_task::{AgentTask, NewTask};

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
        let slot = CallSlot { index: call.slot_range.effect(), recorded: call.effect.as_ref() };
        let effect = delegate
            .link
            .spawn(slot, || {
                let key = format!("call:{}", call.slot_range.effect());
                delegate.agents.child_spec(&delegate.blueprint, new_task(&self)?.into_draft(), &key)
            })
            .await?;
        let child = expect_spawned(&effect)?;
        let address = format!("{}:{}", child.kind, child.no);
        match &call.completion {
            Some(completion) => {
                wait_tasks::render_completion(delegate, completion, &[child.no]).await
            }
            None if self.wait => {
                let asked = ConditionRequest::Tasks {
                    tasks: vec![child.no],
                    mode: WaitMode::All,
                    timeout: None,
                    interruptible: true,
                };
                Ok(ToolReply::Park { condition: asked, effect: Some(effect.clone()) })
            }
            None => Ok(ToolReply::text(render_started(&address, child.existing).text())),
        }
    }
}

fn new_task(args: &SpawnAgent) -> Result<NewTask<AgentTask<Json>>, Refusal> {
    let mut task = NewTask::agent(&args.task).returns_json();
    if let Some(name) = &args.name {
        task = task.name(name);
    }
    if let Some(agent) = &args.agent {
        task = task.definition(agent);
    }
    if let Some(config) = &args.config {
        task = task.config(config);
    }
    if let Some(schema) = &args.result_schema {
        task = task.result_schema(schema);
    }
    if let Some(key) = &args.key {
        task = task.key(key);
    }
    if let Some(budget) = args.budget {
        task = task.limits(budget.to_limits()?);
    }
    if args.worktree {
        task = task.worktree();
    }
    Ok(if args.keep { task.keep() } else { task })
}
