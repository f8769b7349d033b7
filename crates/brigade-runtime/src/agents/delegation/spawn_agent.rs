//! Starts a sub-agent.

use brigade_agent::{Call, Effect, Hints, Outcome, Outliving, Subject, ToolError};
use brigade_model::call::{Asked, WaitMode};
use brigade_model::ids::Millis;
use brigade_model::limits::{Limits, Money};
use brigade_model::refusal::Refusal;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Delegate, Delegation, not_blank, wait_tasks};
use crate::agents::link::spawned;
use crate::agents::settle::GENERAL;
use crate::new_task::NewTask;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpawnAgent {
    /// What it is to do, complete: it knows nothing of this conversation.
    task: String,
    /// A name to find it by, such as "Test Runner". Free again when it has ended.
    #[serde(default)]
    name: Option<String>,
    /// Which definition it is made from. Default: a general one.
    #[serde(default)]
    agent: Option<String>,
    /// Settings that its definition asks for.
    #[serde(default)]
    config: Option<Map<String, Value>>,
    /// Wait here for its result instead of going on.
    #[serde(default)]
    wait: bool,
    /// Let it go on when you end, instead of being stopped.
    #[serde(default)]
    keep: bool,
    /// The same key with the same arguments is the same sub-agent, however often it is asked for.
    #[serde(default)]
    key: Option<String>,
    /// The most that it and all below it may use.
    #[serde(default)]
    budget: Option<Budget>,
    /// A JSON schema that its result must fit.
    #[serde(default)]
    result_schema: Option<Map<String, Value>>,
}

/// The most that a sub-agent and all below it may use.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    #[serde(default)]
    tokens: Option<u64>,
    #[serde(default)]
    dollars: Option<f64>,
    #[serde(default)]
    seconds: Option<u64>,
}

impl Delegation for SpawnAgent {
    const NAME: &'static str = "spawn_agent";
    const DESCRIPTION: &'static str = "Start a sub-agent in the background and get its address at \
        once. Use it for work that stands by itself and takes several steps, above all for several \
        pieces side by side. Its result comes to you by itself when it ends, or to wait_tasks. Not for \
        what you can do in a call or two, and not for a single command: run_process does that.";
    const HINTS: Hints = Hints::of(Effect::Recorded);

    fn subject(&self, _directory: Option<&str>) -> Subject {
        Subject::Text(self.agent.clone().unwrap_or_else(|| GENERAL.to_owned()))
    }

    fn outliving(&self) -> Outliving {
        if self.keep { Outliving::Agent } else { Outliving::Nothing }
    }

    async fn run(self, delegate: &Delegate, call: &Call) -> Result<Outcome, ToolError> {
        not_blank("task", &self.task)?;
        let record = (call.place.effect(), call.effect.as_ref());
        let effect = delegate
            .link
            .spawn(record, || {
                let key = format!("call:{}", call.place.effect());
                delegate.agents.spec_of_child(&delegate.blueprint, self.new_task()?, &key)
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
            None => {
                let before = if child.existing { " It had been started before." } else { "" };
                Ok(Outcome::text(format!("{address} has started.{before}")))
            }
        }
    }
}

impl SpawnAgent {
    fn new_task(&self) -> Result<NewTask, Refusal> {
        let mut task = NewTask::agent(&self.task);
        if let Some(name) = &self.name {
            task = task.name(name);
        }
        if let Some(agent) = &self.agent {
            task = task.definition(agent);
        }
        if let Some(config) = &self.config {
            task = task.config(config);
        }
        if let Some(schema) = &self.result_schema {
            task = task.result_schema(schema);
        }
        if let Some(key) = &self.key {
            task = task.key(key);
        }
        if let Some(budget) = self.budget {
            task = task.limits(budget.limits()?);
        }
        Ok(if self.keep { task.keep() } else { task })
    }
}

impl Budget {
    pub fn limits(self) -> Result<Limits, Refusal> {
        let money = match self.dollars {
            Some(dollars) if !(0.0..=1e9).contains(&dollars) => {
                let text = format!("the argument `budget`: {dollars} is no amount of dollars");
                return Err(Refusal::invalid(text));
            }
            Some(dollars) => Some(Money((dollars * 1e6) as u64)),
            None => None,
        };
        let time = self.seconds.map(|seconds| Millis(seconds.saturating_mul(1_000)));
        Ok(Limits { tokens: self.tokens, money, time, ..Limits::default() })
    }
}
