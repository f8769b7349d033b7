//! Starts a sub-agent.

use brigade_agent::{Call, Effect, Outcome, Outliving, Subject, ToolError};
use brigade_delegation::SpawnAgent;
use brigade_delegation::background_task::render_started;
use brigade_model::call::{Asked, WaitMode};
use brigade_model::refusal::Refusal;

use super::{Delegate, Delegation, wait_tasks};
use crate::agents::link::spawned;
use crate::agents::settle::GENERAL;
use crate::new_task::NewTask;

impl Delegation for SpawnAgent {
    const EFFECT: Effect = Effect::Recorded;

    fn subject(&self, _directory: Option<&str>) -> Subject {
        Subject::Text(self.agent.clone().unwrap_or_else(|| GENERAL.to_owned()))
    }

    fn outliving(&self) -> Outliving {
        if self.keep { Outliving::Agent } else { Outliving::Nothing }
    }

    async fn run(self, delegate: &Delegate, call: &Call) -> Result<Outcome, ToolError> {
        self.check()?;
        let record = (call.place.effect(), call.effect.as_ref());
        let effect = delegate
            .link
            .spawn(record, || {
                let key = format!("call:{}", call.place.effect());
                delegate.agents.spec_of_child(&delegate.blueprint, new_task(&self)?, &key)
            })
            .await?;
        let child = spawned(&effect)?;
        let address = format!("{}:{}", child.kind, child.no);
        match &call.told {
            Some(told) => wait_tasks::told(delegate, told, &[child.no]).await,
            None if self.wait => {
                let (tasks, mode) = (vec![child.no], WaitMode::All);
                let asked = Asked::Tasks { tasks, mode, patience: None, interruptible: true };
                Ok(Outcome::Park { asked, effect: Some(effect.clone()) })
            }
            None => Ok(Outcome::text(render_started(&address, child.existing).text())),
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
        task = task.limits(budget.limits()?);
    }
    Ok(if asked.keep { task.keep() } else { task })
}
