//! A tool of a server, as agents call it.

use std::fmt::Display;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use brigade_llm::ToolSpec;
use brigade_model::truncate::truncate_middle;
use serde_json::{Map, Value, json};

use super::connection::McpCallError;
use super::server_link::ServerLink;
use super::tool_list::ListedTool;
use super::{tool_names, tool_result};
use brigade_agent::RESULT_MAX;
use brigade_agent::json_schema::Schema;
use brigade_agent::tool::{
    BoxFuture, ExecutionHints, ToolEffect, ToolError, ToolHandler, ToolInvocation, ToolReply,
};

/// The maximum number of connections over which one call is tried.
const CALL_TRIES: u32 = 3;
/// The time that a call waits for an unreachable server.
const CONNECT_WAIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct McpTool {
    /// A weak reference, because the link owns its tools.
    link: Weak<ServerLink>,
    listed: ListedTool,
    /// The schema of the arguments, compiled at the first call.
    schema: OnceLock<Option<Schema>>,
}

impl McpTool {
    pub(super) fn new(link: &Arc<ServerLink>, listed: ListedTool) -> Self {
        Self { link: Arc::downgrade(link), listed, schema: OnceLock::new() }
    }

    async fn check(&self, arguments: &Value) -> Result<(), ToolError> {
        let compile = || Schema::compile(&self.listed.spec.parameters).ok();
        let schema =
            self.schema.get_or_init(|| self.listed.checks_arguments.then(compile).flatten());
        let Some(schema) = schema else { return Ok(()) };
        schema.check_async(arguments).await.map_err(|mismatch| {
            ToolError::new(format!(
                "the arguments do not match the schema, and nothing was done: {mismatch}"
            ))
        })
    }

    /// Returns true if a call that may have been executed can be repeated.
    fn may_repeat(&self) -> bool {
        is_repeatable(self.listed.hints.effect)
    }

    async fn call_with_retries(
        &self,
        arguments: Map<String, Value>,
    ) -> Result<ToolReply, ToolError> {
        let link =
            self.link.upgrade().ok_or_else(|| ToolError::new("the runtime is shutting down"))?;
        let mut lost = None;
        for _ in 0..CALL_TRIES {
            let connection = match link.connect(CONNECT_WAIT).await {
                Ok(connection) => connection,
                Err(problem) => return Err(unreachable_error(&link.name, lost, &problem)),
            };
            if let Some(LostCall::MayBeRepeated(problem)) = &lost
                && !self.may_still_repeat(&link)
            {
                return Err(unanswered_error(&link.name, problem, false));
            }
            let called = connection.call_tool(&self.listed.original_name, arguments.clone()).await;
            match called {
                Ok(result) => {
                    let rendered =
                        tool_result::render_result(&result, self.listed.output_schema.as_deref())
                            .await;
                    // Redact first: truncation could split a secret.
                    let clean =
                        |text| truncate_middle(&connection.secrets().redact(text), RESULT_MAX);
                    return map_reply_text(rendered, clean);
                }
                Err(McpCallError::Refused(message)) => return Err(ToolError::new(message)),
                Err(McpCallError::NotSent(problem)) => {
                    lost = lost.or(Some(LostCall::NotSent(problem)))
                }
                Err(McpCallError::Lost(problem)) if self.may_repeat() => {
                    lost = Some(LostCall::MayBeRepeated(problem));
                }
                Err(error @ (McpCallError::Lost(_) | McpCallError::TimedOut(_))) => {
                    return Err(unanswered_error(&link.name, &error, self.may_repeat()));
                }
            }
            if let Some(loss) = &lost {
                tracing::info!(tool = %self.listed.spec.name, "the call is repeated: {}", loss.problem());
            }
        }
        Err(unreachable_error(&link.name, lost, &format!("it was tried {CALL_TRIES} times")))
    }

    /// Returns true if the call can be repeated by the hints that the server lists since it is
    /// back.
    fn may_still_repeat(&self, link: &ServerLink) -> bool {
        let tools = link.catalog().tools.unwrap_or_default();
        let now = tools.iter().find(|tool| tool.spec().name == self.listed.spec.name);
        now.is_some_and(|tool| is_repeatable(tool.hints().effect))
    }
}

fn is_repeatable(effect: ToolEffect) -> bool {
    matches!(effect, ToolEffect::Pure | ToolEffect::Idempotent)
}

/// Returns the error for a call that was sent and got no reply.
fn unanswered_error(server: &str, problem: &dyn Display, may_repeat: bool) -> ToolError {
    let advice = match may_repeat {
        true => "You may try it again.",
        false => {
            "Its effect is unknown: it may have happened, in whole or in part. Look before you try \
             again."
        }
    };
    ToolError::new(format!("{server} did not answer: {problem}. {advice}"))
}

impl ToolHandler for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.listed.spec
    }

    fn hints(&self) -> ExecutionHints {
        self.listed.hints
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        Box::pin(async move {
            self.check(&call.arguments).await?;
            match call.arguments {
                Value::Object(arguments) => self.call_with_retries(arguments).await,
                _ => Err(ToolError::new("the arguments must be a JSON object")),
            }
        })
    }
}

/// The reason to repeat a call.
enum LostCall {
    NotSent(String),
    MayBeRepeated(String),
}

impl LostCall {
    fn problem(&self) -> &str {
        match self {
            Self::NotSent(problem) | Self::MayBeRepeated(problem) => problem,
        }
    }
}

fn unreachable_error(server: &str, lost: Option<LostCall>, problem: &str) -> ToolError {
    ToolError::new(match lost {
        None => format!("{server} cannot be reached, and nothing was done: {problem}"),
        Some(LostCall::NotSent(first)) => {
            format!("{server} cannot be reached, and nothing was done: {first}; then: {problem}")
        }
        Some(LostCall::MayBeRepeated(first)) => format!(
            "{server} was lost during the call ({first}), and cannot be reached again: {problem}. \
             You may try it again later."
        ),
    })
}

fn map_reply_text(
    reply: Result<ToolReply, ToolError>,
    clean: impl Fn(String) -> String,
) -> Result<ToolReply, ToolError> {
    match reply {
        Ok(ToolReply::Text(text)) => Ok(ToolReply::Text(clean(text))),
        Ok(other) => Ok(other),
        Err(ToolError(text)) => Err(ToolError(clean(text))),
    }
}

/// A stand-in for an unavailable tool, or for all tools of a server.
#[derive(Debug)]
pub(super) struct AbsentTool {
    spec: ToolSpec,
    /// `None` for a server that this runtime does not have.
    link: Option<Arc<ServerLink>>,
    /// `Once` for a called tool, of which nothing is known; `Pure` for our own `reconnect`.
    effect: ToolEffect,
}

impl AbsentTool {
    /// Creates a stand-in for a tool that a model called.
    pub(super) fn for_called_tool(name: &str, link: Option<Arc<ServerLink>>) -> Self {
        let spec =
            ToolSpec { name: name.into(), description: "".into(), parameters: empty_schema() };
        Self { spec, link, effect: ToolEffect::Once }
    }

    /// Creates the tool that a model is offered instead of the tools of an unreachable server.
    pub(super) fn reconnect(link: &Arc<ServerLink>, problem: &str) -> Self {
        let name = format!("{}reconnect", tool_names::prefix(&link.name));
        let description = format!(
            "The tools of {} are unavailable because the server cannot be reached: {problem}. Call this \
             tool to reconnect. If it succeeds, you can use them from your next message on.",
            link.name
        );
        let spec = ToolSpec {
            name: name.into(),
            description: description.into(),
            parameters: empty_schema(),
        };
        Self { spec, link: Some(link.clone()), effect: ToolEffect::Pure }
    }

    async fn try_reconnect(&self) -> Result<ToolReply, ToolError> {
        let name = &self.spec.name;
        let Some(link) = &self.link else {
            let problem = format!("the server of {name} is not configured here; nothing was done");
            return Err(ToolError::new(problem));
        };
        if let Err(problem) = link.connect(CONNECT_WAIT).await {
            return Err(unreachable_error(&link.name, None, &problem));
        }
        let tools = link.catalog().tools.unwrap_or_default();
        let names: Vec<&str> = tools.iter().map(|tool| &*tool.spec().name).collect();
        if self.effect == ToolEffect::Pure {
            let names = names.join(", ");
            return Ok(ToolReply::text(format!("{} is connected; its tools: {names}", link.name)));
        }
        let problem = match names.contains(&&**name) {
            true => "the tool was unavailable, and nothing was done; it is available now",
            false => "the tool no longer exists, and nothing was done",
        };
        Err(ToolError::new(format!("{name}: {problem}")))
    }
}

fn empty_schema() -> Arc<Value> {
    Arc::new(json!({"type": "object", "properties": {}}))
}

impl ToolHandler for AbsentTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(self.effect)
    }

    fn call(&self, _: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        Box::pin(self.try_reconnect())
    }
}
