//! Spans and counts of what an agent does, by OpenTelemetry's conventions for generative AI.
//!
//! Names, numbers and kinds of errors are in them, and nothing that was said, asked or answered.
//! Without anybody who listens to the target a span is a look at a flag.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use brigade_llm::{ModelError, ModelErrorKind, ModelReply, ModelRequest, StopReason, ToolCall};
use brigade_model::limits::Usage;
use tracing::Span;
use tracing::field::Empty;

use crate::agent::Agent;

/// The target of all spans: who wants them asks for this.
pub const TARGET: &str = "brigade::gen_ai";

/// Calls of tools, by `tool` and `outcome`: `succeeded`, `failed`, `refused`, `waits`.
pub const TOOL_CALLS: &str = "brigade_tool_calls_total";
/// Model calls that were begun anew, by `provider` and `model`.
pub const MODEL_RETRIES: &str = "brigade_model_retries_total";

/// Around one call of a model.
pub(crate) fn chat_span(agent: &Agent, request: &ModelRequest) -> Span {
    tracing::info_span!(
        target: TARGET,
        "chat",
        otel.name = %format_args!("chat {}", request.model),
        otel.kind = "client",
        otel.status_code = Empty,
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = &*agent.provider,
        gen_ai.request.model = &*request.model,
        gen_ai.request.max_tokens = request.max_output,
        gen_ai.request.temperature = request.temperature,
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty,
        gen_ai.usage.cache_creation.input_tokens = Empty,
        brigade.cost = Empty,
        error.type = Empty,
    )
}

/// What the model replied, and what that cost.
pub(crate) fn record_reply(span: &Span, reply: &ModelReply, cost: Usage) {
    let usage = &reply.usage;
    let calls = reply.message.calls().next().is_some();
    span.record(
        "gen_ai.response.finish_reasons",
        match reply.stop {
            StopReason::EndOfTurn if calls => "tool_calls",
            StopReason::EndOfTurn => "stop",
            StopReason::Length => "length",
            StopReason::Filtered => "content_filter",
        },
    );
    span.record("gen_ai.usage.input_tokens", usage.input);
    span.record("gen_ai.usage.output_tokens", usage.output);
    if usage.cached > 0 {
        span.record("gen_ai.usage.cache_read.input_tokens", usage.cached);
    }
    if usage.cache_written > 0 {
        span.record("gen_ai.usage.cache_creation.input_tokens", usage.cache_written);
    }
    record_cost(span, cost);
}

/// In dollars; left out when nothing was charged.
pub fn record_cost(span: &Span, cost: Usage) {
    if cost.money.0 > 0 {
        span.record("brigade.cost", cost.money.0 as f64 / 1e6);
    }
}

/// The model did not reply, or nobody waits for its reply any more.
pub(crate) fn record_no_reply(span: &Span, error: Option<&ModelError>) {
    record_error(span, error.map_or(INTERRUPTED, |error| error_type(error.kind)));
}

/// Around one call of a tool.
pub(crate) fn tool_span(said: &ToolCall) -> Span {
    tracing::info_span!(
        target: TARGET,
        "execute_tool",
        otel.name = %format_args!("execute_tool {}", said.name),
        otel.kind = "internal",
        otel.status_code = Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = &*said.name,
        gen_ai.tool.call.id = &*said.id,
        gen_ai.tool.type = "function",
        brigade.tool.outcome = Empty,
        error.type = Empty,
    )
}

/// What became of a call of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolCallStatus {
    Succeeded,
    Failed,
    /// It was never carried out.
    Refused,
    /// For leave, or for what it started.
    Waiting,
}

impl ToolCallStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Waiting => "waits",
        }
    }
}

pub(crate) fn record_tool_status(span: &Span, outcome: ToolCallStatus) {
    span.record("brigade.tool.outcome", outcome.as_str());
    if outcome == ToolCallStatus::Failed {
        record_error(span, "tool_error");
    }
}

/// Marks a span as cut off where nobody gets to say how it ended: an agent is stopped by dropping it.
pub(crate) struct FailOnDrop<'a>(Option<&'a Span>);

impl<'a> FailOnDrop<'a> {
    pub(crate) fn new(span: &'a Span) -> Self {
        Self(Some(span))
    }

    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for FailOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(span) = self.0 {
            record_error(span, INTERRUPTED);
        }
    }
}

const INTERRUPTED: &str = "interrupted";

/// Marks a span as one of something that went wrong.
pub fn record_error(span: &Span, error_type: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", error_type);
}

impl Agent {
    pub(crate) fn count_call(&self, tool: &str, outcome: ToolCallStatus) {
        static TOOLS: BoundedNames = BoundedNames::with_capacity(200);
        let known = self.tools.get(tool).is_some();
        let tool = if known { TOOLS.bound_name(tool) } else { "unknown".to_owned() };
        metrics::counter!(TOOL_CALLS, "tool" => tool, "outcome" => outcome.as_str()).increment(1);
    }

    pub(crate) fn count_retry(&self) {
        static MODELS: BoundedNames = BoundedNames::with_capacity(100);
        let provider = self.provider.to_string();
        let model = MODELS.bound_name(&self.model_name);
        metrics::counter!(MODEL_RETRIES, "provider" => provider, "model" => model).increment(1);
    }
}

/// Names that are counted each on its own. Clients bring tools and people name models, so there is no
/// end of them; a label must have one.
struct BoundedNames {
    most: usize,
    known: Mutex<BTreeSet<String>>,
}

impl BoundedNames {
    const fn with_capacity(most: usize) -> Self {
        Self { most, known: Mutex::new(BTreeSet::new()) }
    }

    /// The name, or `other` when there are too many.
    fn bound_name(&self, name: &str) -> String {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_in = known.contains(name);
        if is_in || (known.len() < self.most && known.insert(name.to_owned())) {
            name.to_owned()
        } else {
            "other".to_owned()
        }
    }
}

fn error_type(kind: ModelErrorKind) -> &'static str {
    match kind {
        ModelErrorKind::RateLimited => "rate_limited",
        ModelErrorKind::Server => "server_error",
        ModelErrorKind::Connection => "connection",
        ModelErrorKind::Timeout => "timeout",
        ModelErrorKind::Garbage => "malformed_reply",
        ModelErrorKind::Auth => "authentication",
        ModelErrorKind::TooLong => "context_too_long",
        ModelErrorKind::Invalid => "invalid_request",
        ModelErrorKind::Exhausted => "quota_exhausted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_end_make_labels_with_one() {
        let names = BoundedNames::with_capacity(2);
        let bounded = ["a", "b", "c", "a", "d"].map(|name| names.bound_name(name));
        assert_eq!(bounded, ["a", "b", "other", "a", "other"]);
    }
}
