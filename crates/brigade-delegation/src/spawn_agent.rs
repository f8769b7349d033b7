//! `spawn_agent`: starts a sub-agent as a task.

use std::time::Duration;

use brigade_model::ids::Millis;
use brigade_model::limits::{Limits, Money};
use brigade_model::refusal::Refusal;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::audience::{Audience, ClientProfile, HiddenArgs, WaitBounds};
use crate::tool_args::{ArgumentDoc, ToolArgs, ToolHints, require_text};

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpawnAgent {
    /// The whole task: the sub-agent knows nothing of this conversation.
    pub task: String,
    /// A name to find it by, such as "Research". Free again when it has ended.
    #[serde(default)]
    pub name: Option<String>,
    /// The name of its definition. Default: a general one.
    #[serde(default)]
    pub agent: Option<String>,
    /// Settings that its definition requires.
    #[serde(default)]
    pub config: Option<Map<String, Value>>,
    /// Wait for its result instead of returning its address at once.
    #[serde(default)]
    pub wait: bool,
    /// With wait: the seconds to wait.
    #[serde(default)]
    #[schemars(with = "Option<u64>")]
    pub wait_secs: Option<f64>,
    /// Let it run on when its owner ends.
    #[serde(default)]
    pub keep: bool,
    /// Work in a new git worktree on a branch of its own, from the HEAD of its directory.
    #[serde(default)]
    pub worktree: bool,
    /// The same key with the same arguments is the same sub-agent, however often you call.
    #[serde(default)]
    pub key: Option<String>,
    /// The most that it and everything it starts may use.
    #[serde(default)]
    pub budget: Option<BudgetArgs>,
    /// A JSON schema that its result must fit.
    #[serde(default)]
    pub result_schema: Option<Map<String, Value>>,
    /// The model, as provider/model. Default: that of its definition, else the configured one.
    #[serde(default)]
    pub model: Option<String>,
}

/// The most that a sub-agent and everything it starts may use.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetArgs {
    #[serde(default)]
    tokens: Option<u64>,
    #[serde(default)]
    dollars: Option<f64>,
    #[serde(default)]
    seconds: Option<u64>,
}

impl ToolArgs for SpawnAgent {
    const NAME: &'static str = "spawn_agent";
    const TITLE: &'static str = "Start a sub-agent";
    const HINTS: ToolHints = ToolHints::STARTS_WORK;

    fn description(audience: Audience) -> String {
        match audience {
            Audience::Agent => {
                "Start a sub-agent in the background and get its address at once. Use it for \
                 independent work of several steps, above all for several pieces side by side. You get \
                 its result without asking when it ends, or from wait_tasks. Not for what you can do in \
                 a call or two, and not for a single command: use run_process."
            }
            Audience::Client(_) => {
                "Start a sub-agent in the background and get its address at once. It survives this \
                 conversation. Use it for independent work of several steps, above all for several \
                 pieces side by side. wait_tasks returns its result, or a question that it asks; answer \
                 and steer it with send_message. Not for what you can do in a call or two, and not for \
                 a single command: use run_process."
            }
        }
        .to_owned()
    }

    fn hidden_args(audience: Audience) -> &'static [&'static str] {
        let hidden =
            HiddenArgs { agent: &["model", "wait_secs"], inner_client: &[], top_client: &["keep"] };
        hidden.select(audience)
    }

    fn argument_docs(audience: Audience) -> Vec<ArgumentDoc> {
        let owner = if audience.is_agent() { "you end" } else { "the task that you run in ends" };
        let keep = format!("Let it run on when {owner}, instead of being stopped.");
        let mut docs = vec![ArgumentDoc::new("keep", keep)];
        if let Audience::Client(client) = audience {
            let WaitBounds { default_secs, max_secs } = client.wait;
            let wait = format!(
                "With wait: the seconds that this call waits; then the sub-agent runs on in the \
                 background. Default {default_secs}, most {max_secs}."
            );
            docs.push(ArgumentDoc::new("wait_secs", wait));
        }
        docs
    }
}

impl SpawnAgent {
    /// Returns the timeout of a call that waits for the result.
    pub fn wait(&self, client: ClientProfile) -> Result<Option<Duration>, Refusal> {
        match self.wait_secs {
            Some(secs) => {
                let wait = Audience::Client(client).read_wait("wait_secs", secs)?;
                Ok(self.wait.then_some(wait))
            }
            None => Ok(self.wait.then(|| Duration::from_secs(client.wait.default_secs))),
        }
    }

    /// Checks the arguments beyond their types.
    pub fn check(&self) -> Result<(), Refusal> {
        require_text("task", &self.task)?;
        // A scheme such as `script:` names a file, which a model may not choose.
        let has_scheme = |model: &&String| {
            model.split('/').next().is_some_and(|provider| provider.contains(':'))
        };
        match self.model.as_ref().filter(has_scheme) {
            Some(model) => {
                let text = format!("the argument `model`: {model:?} is not provider/model");
                Err(Refusal::invalid(text))
            }
            None => Ok(()),
        }
    }
}

impl BudgetArgs {
    pub fn to_limits(self) -> Result<Limits, Refusal> {
        let money = match self.dollars {
            Some(dollars) if !(0.0..=1e9).contains(&dollars) => {
                let text = format!("the argument `budget`: {dollars} is not an amount of dollars");
                return Err(Refusal::invalid(text));
            }
            Some(dollars) => Some(Money((dollars * 1e6) as u64)),
            None => None,
        };
        let time = self.seconds.map(|seconds| Millis(seconds.saturating_mul(1_000)));
        Ok(Limits { tokens: self.tokens, money, time, ..Limits::default() })
    }
}
