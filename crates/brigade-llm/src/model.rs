//! The trait for models: a request goes in, a stream of parts comes out.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::conversation::{AssistantMessage, ChatMessage};
use crate::error::ModelError;

/// The parts of a reply in order of arrival. The last item is [`ReplyPart::Finished`] or an error;
/// an implementation reports a stream that ends early as an error. Dropping the stream ends the
/// call.
pub type PartStream = Pin<Box<dyn Stream<Item = Result<ReplyPart, ModelError>> + Send>>;

/// A model that continues a conversation.
pub trait Model: Debug + Send + Sync + 'static {
    /// Starts one call. Nothing is sent before the stream is polled.
    fn call(&self, request: Arc<ModelRequest>) -> PartStream;
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelRequest {
    /// The caller, as a person or a script knows it: the agent's name or address. Not sent.
    pub agent: Arc<str>,
    /// The provider's name for the model.
    pub model: Arc<str>,
    pub system: Arc<str>,
    pub messages: Vec<ChatMessage>,
    /// The tools, sent with every request of a conversation. Without them, earlier calls would
    /// become prose.
    pub tools: Arc<[ToolSpec]>,
    /// The maximum number of tokens in the reply.
    pub max_output: u32,
    pub temperature: Option<f64>,
    pub effort: Option<ReasoningEffort>,
}

/// The amount of reasoning requested from the model. Models without the setting ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    Low,
    Medium,
    High,
}

/// A tool as described to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    pub name: Arc<str>,
    pub description: Arc<str>,
    /// A JSON schema of an object.
    pub parameters: Arc<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyPart {
    /// The next piece of text.
    Text(String),
    /// The next piece of reasoning.
    Reasoning(String),
    /// The start of a call of this tool; its arguments are in the reply.
    Call { name: String },
    /// The call waits for the rate limiter. Repeated at intervals while it waits.
    Queued,
    /// The call was restarted, and all earlier parts are void.
    Restarted { reason: String },
    /// The whole reply.
    Finished(Box<ModelReply>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    pub message: AssistantMessage,
    pub usage: TokenUsage,
    pub stop: StopReason,
}

/// The reason why the model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model finished its message, or it waits for the results of its calls.
    EndOfTurn,
    /// The reply reached `max_output` and is truncated.
    Length,
    /// The provider withheld the reply.
    Filtered,
}

/// Tokens as the provider counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenUsage {
    /// All tokens of the request, cached ones included.
    pub input: u64,
    /// The part of `input` that was read from the provider's cache.
    pub cached: u64,
    /// The part of `input` that was written to the provider's cache.
    pub cache_written: u64,
    /// All tokens of the reply, reasoning included.
    pub output: u64,
}

impl TokenUsage {
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}
