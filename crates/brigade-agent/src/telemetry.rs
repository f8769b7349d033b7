//! Spans and metrics of an agent, by OpenTelemetry's conventions for generative AI.
//!
//! They contain names, numbers and kinds of errors, and no prompts, arguments or replies. Without a
//! subscriber to the target, a span costs one check of a flag.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use brigade_llm::{ModelError, ModelErrorKind, ModelReply, ModelRequest, StopReason, ToolCall};
use brigade_model::limits::Usage;
use tracing::Span;
use tracing::field::Empty;

use crate::agent::Agent;

/// The `tracing` target of all spans.
pub const TARGET: &str = "brigade::gen_ai";

/// Tool calls, by `tool` and `status`: `succeeded`, `failed`, `refused`, `waiting`.
pub const TOOL_CALLS: &str = "brigade_tool_calls_total";
/// Retries of model calls, by `provider` and `model`.
pub const MODEL_RETRIES: &str = "brigade_model_retries_total";

/// Creates the span of one model call.
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

/// Records a reply of the model and its cost.
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

/// Records a cost in dollars, unless it is zero.
pub fn record_cost(span: &Span, cost: Usage) {
    if cost.money.0 > 0 {
        span.record("brigade.cost", cost.money.0 as f64 / 1e6);
    }
}

/// Records a failed model call, or an interrupted one if there is no error.
pub(crate) fn record_no_reply(span: &Span, error: Option<&ModelError>) {
    record_error(span, error.map_or(INTERRUPTED, |error| error_type(error.kind)));
}

/// Creates the span of one tool call.
pub(crate) fn tool_span(call: &ToolCall) -> Span {
    tracing::info_span!(
        target: TARGET,
        "execute_tool",
        otel.name = %format_args!("execute_tool {}", call.name),
        otel.kind = "internal",
        otel.status_code = Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = &*call.name,
        gen_ai.tool.call.id = &*call.id,
        gen_ai.tool.type = "function",
        brigade.tool.status = Empty,
        error.type = Empty,
    )
}

/// The status of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolCallStatus {
    Succeeded,
    Failed,
    /// The call was not executed.
    Refused,
    /// The call is parked on an approval or another condition.
    Waiting,
}

impl ToolCallStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Waiting => "waiting",
        }
    }
}

pub(crate) fn record_tool_status(span: &Span, status: ToolCallStatus) {
    span.record("brigade.tool.status", status.as_str());
    if status == ToolCallStatus::Failed {
        record_error(span, "tool_error");
    }
}

/// Marks a span as interrupted when it is dropped, since the runtime stops an agent by dropping its
/// future.
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

/// Marks a span as failed.
pub fn record_error(span: &Span, error_type: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", error_type);
}

impl Agent {
    pub(crate) fn count_call(&self, tool: &str, status: ToolCallStatus) {
        static TOOLS: BoundedNames = BoundedNames::with_capacity(200);
        let known = self.tools.get(tool).is_some();
        let tool = if known { TOOLS.bound_name(tool) } else { "unknown".to_owned() };
        metrics::counter!(TOOL_CALLS, "tool" => tool, "status" => status.as_str()).increment(1);
    }

    pub(crate) fn count_retry(&self) {
        static MODELS: BoundedNames = BoundedNames::with_capacity(100);
        let provider = self.provider.to_string();
        let model = MODELS.bound_name(&self.model_name);
        metrics::counter!(MODEL_RETRIES, "provider" => provider, "model" => model).increment(1);
    }
}

/// A bounded set of label values. Clients bring their own tools and models, so names are unbounded.
struct BoundedNames {
    capacity: usize,
    known: Mutex<BTreeSet<String>>,
}

impl BoundedNames {
    const fn with_capacity(capacity: usize) -> Self {
        Self { capacity, known: Mutex::new(BTreeSet::new()) }
    }

    /// Returns the name, or `other` if the set is full.
    fn bound_name(&self, name: &str) -> String {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = known.contains(name);
        if is_known || (known.len() < self.capacity && known.insert(name.to_owned())) {
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
        // OpenTelemetry's value for an error without a name.
        _ => "_OTHER",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_bounded() {
        let names = BoundedNames::with_capacity(2);
        let bounded = ["a", "b", "c", "a", "d"].map(|name| names.bound_name(name));
        assert_eq!(bounded, ["a", "b", "other", "a", "other"]);
    }
}
