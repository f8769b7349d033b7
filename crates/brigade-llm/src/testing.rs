//! Small requests and replies for tests.

use std::sync::Arc;

use crate::conversation::{AssistantMessage, ChatMessage, ContentBlock};
use crate::model::{ModelReply, ModelRequest, StopReason, TokenUsage};

pub(crate) fn request(agent: &str) -> Arc<ModelRequest> {
    Arc::new(request_with(agent, vec![ChatMessage::user("hello")]))
}

pub(crate) fn request_with(agent: &str, messages: Vec<ChatMessage>) -> ModelRequest {
    ModelRequest {
        agent: agent.into(),
        model: "test".into(),
        system: "".into(),
        messages,
        tools: Vec::new().into(),
        max_output: 1000,
        temperature: None,
        effort: None,
    }
}

pub(crate) fn reply(text: &str) -> ModelReply {
    ModelReply {
        message: AssistantMessage {
            content: vec![ContentBlock::Text(text.into())],
            ..AssistantMessage::default()
        },
        usage: TokenUsage::default(),
        stop: StopReason::EndOfTurn,
    }
}
