//! The seam: a request goes in, a stream of parts comes out.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::conversation::{AssistantMessage, ChatMessage};
use crate::error::ModelError;

/// Parts as they come. The last is [`Part::Finished`] or an error: a stream that just ends was cut
/// off, and is told as such by whoever made it. Dropping it ends the call.
pub type PartStream = Pin<Box<dyn Stream<Item = Result<ReplyPart, ModelError>> + Send>>;

/// Something that continues a conversation.
pub trait Model: Debug + Send + Sync + 'static {
    /// Begins one call. Nothing is sent before the stream is polled.
    fn call(&self, request: Arc<ModelRequest>) -> PartStream;
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelRequest {
    /// Who asks, as a person or a script knows it: the agent's name or address. Not sent.
    pub agent: Arc<str>,
    /// The provider's name of the model.
    pub model: Arc<str>,
    pub system: Arc<str>,
    pub messages: Vec<ChatMessage>,
    /// Sent with every request of a conversation: calls made earlier must stay calls.
    pub tools: Arc<[ToolSpec]>,
    /// The most tokens of the reply.
    pub max_output: u32,
    pub temperature: Option<f64>,
    pub effort: Option<ReasoningEffort>,
}

/// How much the model is to think, where it can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    Low,
    Medium,
    High,
}

/// A tool as a model is told of it.
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
    /// The next words.
    Text(String),
    /// The next words of its thoughts.
    Reasoning(String),
    /// A call of this tool has begun; its arguments are in the reply.
    Call { name: String },
    /// It waits for its turn at the provider. Said now and then while it does.
    Queued,
    /// The call was begun anew, and what came before is void.
    Restarted { because: String },
    /// The whole reply.
    Finished(Box<ModelReply>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    pub message: AssistantMessage,
    pub usage: TokenUsage,
    pub stop: StopReason,
}

/// Why the model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had said what it wanted to say, or wants its calls answered.
    EndOfTurn,
    /// `max_output` was reached: the reply is cut off.
    Length,
    /// The provider held the reply back.
    Filtered,
}

/// Tokens as the provider counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenUsage {
    /// All of the request, what came out of a cache included.
    pub input: u64,
    /// Of `input`, read from the provider's cache.
    pub cached: u64,
    /// Of `input`, written to it.
    pub cache_written: u64,
    /// All of the reply, reasoning included.
    pub output: u64,
}

impl TokenUsage {
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}
