//! Messages between an agent and its model, in the form that a transcript stores.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatMessage {
    User(UserMessage),
    Assistant(Arc<AssistantMessage>),
    /// The results of the previous assistant message's calls, one for each call.
    Results(Vec<ToolResult>),
}

impl ChatMessage {
    pub fn user(text: impl Into<Arc<str>>) -> Self {
        Self::User(UserMessage { text: text.into() })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserMessage {
    pub text: Arc<str>,
}

/// One whole reply of the model, in the order in which it arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AssistantMessage {
    pub content: Vec<ContentBlock>,
    /// The origin of the message, and the items that the provider wants back with the texts. The
    /// `opaque` values of reasoning and calls go back only to that origin.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub opaque: Value,
}

impl AssistantMessage {
    /// Returns the text without reasoning and calls.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|content| match content {
            ContentBlock::Text(text) => Some(&**text),
            ContentBlock::Reasoning(_) | ContentBlock::Call(_) => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|content| match content {
            ContentBlock::Call(call) => Some(call),
            ContentBlock::Text(_) | ContentBlock::Reasoning(_) => None,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentBlock {
    Text(Arc<str>),
    Reasoning(ReasoningBlock),
    Call(ToolCall),
}

/// The model's reasoning, with data that its provider wants back unchanged in the next request
/// (ids, signatures, encrypted reasoning).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReasoningBlock {
    pub text: Arc<str>,
    /// Data that only the provider that made it understands.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub opaque: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id, sent back with the result. Ids may repeat, so nothing else is looked up
    /// by them.
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub arguments: ToolArguments,
    /// Further data that the provider wants back with the call, such as a signature.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub opaque: Value,
}

/// The arguments as the model wrote them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolArguments {
    Json(Value),
    /// Arguments that are not JSON, truncated or far too long. The call must not be executed.
    Malformed {
        problem: Arc<str>,
    },
}

/// The result of one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub text: Arc<str>,
    /// True if the text is the reason of a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}
