//! Small requests and replies for tests.

use std::sync::Arc;

use crate::conversation::{AssistantMessage, Content, Message};
use crate::model::{Reply, Request, StopReason, TokenUsage};

pub(crate) fn request(asker: &str) -> Arc<Request> {
    Arc::new(asking(asker, vec![Message::user("hello")]))
}

pub(crate) fn asking(asker: &str, messages: Vec<Message>) -> Request {
    Request {
        asker: asker.into(),
        model: "test".into(),
        system: "".into(),
        messages,
        tools: Vec::new().into(),
        max_output: 1000,
        temperature: None,
        effort: None,
    }
}

pub(crate) fn reply(text: &str) -> Reply {
    Reply {
        message: AssistantMessage {
            content: vec![Content::Text(text.into())],
            ..AssistantMessage::default()
        },
        usage: TokenUsage::default(),
        stop: StopReason::EndOfTurn,
    }
}
