//! Starts a sub-agent that outlives whoever asked for it.

use brigade_agent::permission::Rules;
use brigade_model::call::WaitMode;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use brigade_runtime::agents::delegation::Budget;
use rmcp::model::{JsonObject, ToolAnnotations};
use schemars::JsonSchema;
use serde::Deserialize;

use super::run_process::{Why, directory, ended_answer, in_background};
use super::tool::{Answer, Call, Tool};
use super::{input, tasks};
use crate::requests::Run;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SpawnAgent {
    /// What it is to do, complete: it knows nothing of this conversation.
    task: String,
    /// A name to find it by, such as "Research". Free again when it has ended.
    #[serde(default)]
    name: Option<String>,
    /// Which definition it is made from. Default: a general one.
    #[serde(default)]
    agent: Option<String>,
    /// Settings that its definition asks for.
    #[serde(default)]
    config: Option<JsonObject>,
    /// Wait for its result, up to 50 seconds, instead of returning its address at once.
    #[serde(default)]
    wait: bool,
    /// Let it go on when the task that started it ends; only for calls from within a task.
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
    result_schema: Option<JsonObject>,
    /// As provider/model. Default: that of its definition, else the configured one.
    #[serde(default)]
    model: Option<String>,
}

impl Tool for SpawnAgent {
    const NAME: &'static str = "spawn_agent";
    const TITLE: &'static str = "Start a sub-agent";
    const DESCRIPTION: &'static str = "Start a sub-agent in the background that survives this session, \
        and get its address at once. Use it for work that stands by itself and takes several steps, \
        above all for several pieces side by side. wait_tasks returns its result, or the question it \
        asks; send_message steers and answers it. Not for what you can do in a call or two, and not \
        for a single command: run_process does that.";

    fn annotations() -> ToolAnnotations {
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(true)
    }

    async fn run(self, call: &Call) -> Result<Answer, Refusal> {
        // All that is wrong is said before anything is started.
        let run = self.request(call)?;
        let started = call.line.ask(|| run.clone()).await?;
        if !self.wait {
            return in_background(call, &started, Why::Asked).await;
        }
        // A task of the protocol asks the user for approvals. Where that is not possible the answer says
        // what the user has to do. A question is for the model, at once.
        let as_task = call.knows_tasks && call.can_be_asked;
        let patience = if as_task { tasks::AT_ONCE } else { input::patience(None)? };
        let address = call.address(&started.task);
        let mut waited = call.wait(&[address], WaitMode::All, patience).await?;
        match waited.ended.pop() {
            Some(ended) => ended_answer(call, &ended).await,
            None if as_task && (waited.timed_out || !waited.pending.is_empty()) => {
                Ok(Answer::Task(Box::new(started.task)))
            }
            None if waited.timed_out => in_background(call, &started, Why::Slow(patience)).await,
            None => in_background(call, &started, Why::Asked).await,
        }
    }
}

impl SpawnAgent {
    fn request(&self, call: &Call) -> Result<Run, Refusal> {
        if self.task.trim().is_empty() {
            return Err(Refusal::invalid("the argument `task` is blank"));
        }
        // What the daemon takes for a file is not for a model to name.
        let is_file = |model: &&String| model.split('/').next().is_some_and(|it| it.contains(':'));
        if let Some(model) = self.model.as_ref().filter(is_file) {
            let text = format!("the argument `model`: {model:?} is not provider/model");
            return Err(Refusal::invalid(text));
        }
        let limits = self.budget.map(Budget::limits).transpose()?;
        Ok(Run {
            name: self.name.clone(),
            key: Some(self.key.clone().unwrap_or_else(|| call.key.clone())),
            agent: self.agent.clone(),
            model: self.model.clone(),
            config: self.config.as_ref().map(Json::of).transpose()?,
            result_schema: self.result_schema.as_ref().map(Json::of).transpose()?,
            cwd: Some(directory(&call.options.directory, None)?),
            limits: limits.map_or_else(Box::default, Box::new),
            permissions: Rules {
                ask: call.options.ask.clone(),
                ..Run::usual_permissions(call.options.allow.iter().cloned())
            },
            keep: self.keep,
            ..Run::new(&call.options.session, &self.task)
        })
    }
}
