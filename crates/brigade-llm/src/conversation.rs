//! What is said between an agent and its model, in the form in which a transcript keeps it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatMessage {
    User(UserMessage),
    Assistant(Arc<AssistantMessage>),
    /// What the calls of the assistant's message before it came to, one for each of them.
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

/// One whole reply of the model, in the order in which it came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AssistantMessage {
    pub content: Vec<ContentBlock>,
    /// Who said it, and what that provider wants back with the texts. The `opaque` of thoughts
    /// and calls goes back only to whom it came from.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub opaque: Value,
}

impl AssistantMessage {
    /// What was said, without reasoning and calls.
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

/// What the model thought, with whatever its provider wants back unchanged (ids, signatures,
/// encrypted thoughts) in the next request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReasoningBlock {
    pub text: Arc<str>,
    /// Of no meaning to anybody but the provider that made it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub opaque: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's, sent back with the result. Nothing else is found by it: two may be the same.
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub arguments: ToolArguments,
    /// What else the provider wants back with the call, such as a signature.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub opaque: Value,
}

/// The arguments as the model gave them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolArguments {
    Json(Value),
    /// Not JSON, cut off or far too long: the call must not be carried out.
    Malformed {
        problem: Arc<str>,
    },
}

/// Answers one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub text: Arc<str>,
    /// Whether the text says why the call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}
