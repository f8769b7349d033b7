//! A tool of a server, as agents call it.

use std::fmt::Display;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use brigade_llm::ToolSpec;
use serde_json::{Map, Value, json};

use super::connection::CallError;
use super::link::Link;
use super::listing::Listed;
use super::{naming, result};
use crate::tool::{BoxFuture, Call, Effect, Hints, Outcome, Tool, ToolError};
use crate::turn::{RESULT_MAX, shortened};
use crate::validate::Schema;

/// Over how many connections a call is tried.
const TRIES: u32 = 3;
/// How long a call waits for a server that is away.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct McpTool {
    /// The link keeps its tools, which must not keep the link.
    link: Weak<Link>,
    listed: Listed,
    /// Of its arguments, once it is called.
    schema: OnceLock<Option<Schema>>,
}

impl McpTool {
    pub(super) fn new(link: &Arc<Link>, listed: Listed) -> Self {
        Self { link: Arc::downgrade(link), listed, schema: OnceLock::new() }
    }

    async fn check(&self, arguments: &Value) -> Result<(), ToolError> {
        let compile = || Schema::compile(&self.listed.spec.parameters).ok();
        let schema = self.schema.get_or_init(|| self.listed.is_checked.then(compile).flatten());
        let Some(schema) = schema else { return Ok(()) };
        schema.check_apart(arguments).await.map_err(|mismatch| {
            ToolError::new(format!("the arguments do not fit, and nothing was done: {mismatch}"))
        })
    }

    /// Whether a call that may have happened may happen again.
    fn may_repeat(&self) -> bool {
        is_repeatable(self.listed.hints.effect)
    }

    async fn carry_out(&self, arguments: Map<String, Value>) -> Result<Outcome, ToolError> {
        let link = self.link.upgrade().ok_or_else(|| ToolError::new("the runtime is leaving"))?;
        let mut lost = None;
        for _ in 0..TRIES {
            let connection = match link.connected(PATIENCE).await {
                Ok(connection) => connection,
                Err(problem) => return Err(unreachable(&link.name, lost, &problem)),
            };
            if let Some(Loss::MayBeRepeated(problem)) = &lost
                && !self.may_still_repeat(&link)
            {
                return Err(unanswered(&link.name, problem, false));
            }
            let called = connection.call(&self.listed.original, arguments.clone()).await;
            match called {
                Ok(returned) => {
                    let told = result::told(&returned, self.listed.output.as_deref()).await;
                    // Cut in two, a secret would not be found.
                    let clean =
                        |text| shortened(&connection.secrets().left_out_of(text), RESULT_MAX);
                    return in_other_words(told, clean);
                }
                Err(CallError::Refused(said)) => return Err(ToolError::new(said)),
                Err(CallError::NotSent(problem)) => lost = lost.or(Some(Loss::NotSent(problem))),
                Err(CallError::Lost(problem)) if self.may_repeat() => {
                    lost = Some(Loss::MayBeRepeated(problem));
                }
                Err(error @ (CallError::Lost(_) | CallError::TimedOut(_))) => {
                    return Err(unanswered(&link.name, &error, self.may_repeat()));
                }
            }
            if let Some(loss) = &lost {
                tracing::info!(tool = %self.listed.spec.name, "is called again: {}", loss.problem());
            }
        }
        Err(unreachable(&link.name, lost, &format!("it was tried {TRIES} times")))
    }

    /// The same, as the server has it since it is back.
    fn may_still_repeat(&self, link: &Link) -> bool {
        let tools = link.standing().tools.unwrap_or_default();
        let now = tools.iter().find(|tool| tool.spec().name == self.listed.spec.name);
        now.is_some_and(|tool| is_repeatable(tool.hints().effect))
    }
}

fn is_repeatable(effect: Effect) -> bool {
    matches!(effect, Effect::Pure | Effect::Idempotent)
}

/// A call that was heard and not answered.
fn unanswered(server: &str, problem: &dyn Display, may_repeat: bool) -> ToolError {
    let then = match may_repeat {
        true => "You may try it again.",
        false => {
            "Its effect is unknown: it may have happened, in whole or in part. Look before you try \
             again."
        }
    };
    ToolError::new(format!("{server} did not answer: {problem}. {then}"))
}

impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.listed.spec
    }

    fn hints(&self) -> Hints {
        self.listed.hints
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Outcome, ToolError>> {
        Box::pin(async move {
            self.check(&call.arguments).await?;
            match call.arguments {
                Value::Object(arguments) => self.carry_out(arguments).await,
                _ => Err(ToolError::new("the arguments must be a JSON object")),
            }
        })
    }
}

/// Why a call has to be made once more.
enum Loss {
    NotSent(String),
    MayBeRepeated(String),
}

impl Loss {
    fn problem(&self) -> &str {
        match self {
            Self::NotSent(problem) | Self::MayBeRepeated(problem) => problem,
        }
    }
}

fn unreachable(server: &str, lost: Option<Loss>, problem: &str) -> ToolError {
    ToolError::new(match lost {
        None => format!("{server} cannot be reached, and nothing was done: {problem}"),
        Some(Loss::NotSent(first)) => {
            format!("{server} cannot be reached, and nothing was done: {first}; then: {problem}")
        }
        Some(Loss::MayBeRepeated(first)) => format!(
            "{server} was lost during the call ({first}), and cannot be reached again: {problem}. \
             You may try it again later."
        ),
    })
}

fn in_other_words(
    told: Result<Outcome, ToolError>,
    clean: impl Fn(String) -> String,
) -> Result<Outcome, ToolError> {
    match told {
        Ok(Outcome::Text(text)) => Ok(Outcome::Text(clean(text))),
        Ok(other) => Ok(other),
        Err(ToolError(text)) => Err(ToolError(clean(text))),
    }
}

/// Stands for a tool, or for all of a server, that is not there at the moment.
#[derive(Debug)]
pub(super) struct Absent {
    spec: ToolSpec,
    /// None for a server that this runtime does not have.
    link: Option<Arc<Link>>,
    /// What is known of the tool that was called: nothing. What only looks is our own.
    effect: Effect,
}

impl Absent {
    /// For a tool that a model called.
    pub(super) fn called(name: &str, link: Option<Arc<Link>>) -> Self {
        let spec = ToolSpec { name: name.into(), description: "".into(), parameters: empty() };
        Self { spec, link, effect: Effect::Once }
    }

    /// What a model is offered of a server that could not be reached.
    pub(super) fn reconnect(link: &Arc<Link>, problem: &str) -> Self {
        let name = format!("{}reconnect", naming::prefix(&link.name));
        let description = format!(
            "The tools of {} are not there, because it cannot be reached: {problem}. Call this to try \
             again; when it succeeds, they are there from your next message on.",
            link.name
        );
        let spec =
            ToolSpec { name: name.into(), description: description.into(), parameters: empty() };
        Self { spec, link: Some(link.clone()), effect: Effect::Pure }
    }

    async fn look(&self) -> Result<Outcome, ToolError> {
        let name = &self.spec.name;
        let Some(link) = &self.link else {
            let problem = format!("the server of {name} is not configured here; nothing was done");
            return Err(ToolError::new(problem));
        };
        if let Err(problem) = link.connected(PATIENCE).await {
            return Err(unreachable(&link.name, None, &problem));
        }
        let tools = link.standing().tools.unwrap_or_default();
        let names: Vec<&str> = tools.iter().map(|tool| &*tool.spec().name).collect();
        if self.effect == Effect::Pure {
            let names = names.join(", ");
            return Ok(Outcome::text(format!("{} can be reached; it has: {names}", link.name)));
        }
        let problem = match names.contains(&&**name) {
            true => "it was not there when you called it, and nothing was done; it is there now",
            false => "there is no such tool any more, and nothing was done",
        };
        Err(ToolError::new(format!("{name}: {problem}")))
    }
}

fn empty() -> Arc<Value> {
    Arc::new(json!({"type": "object", "properties": {}}))
}

impl Tool for Absent {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn hints(&self) -> Hints {
        Hints::of(self.effect)
    }

    fn call(&self, _: Call) -> BoxFuture<'_, Result<Outcome, ToolError>> {
        Box::pin(self.look())
    }
}
