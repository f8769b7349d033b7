//! The texts of a remote task, and the entry of a transcript with one.

use a2a::{Part, PartContent, Task, TaskStatus};
use brigade_llm::conversation::AssistantMessage;
use brigade_llm::{ContentBlock, ModelReply, StopReason, TokenUsage};
use serde_json::Value;

use crate::answer_text::AnswerText;

/// Returns the result: the parts of all artifacts, or the message of the status without them. A text
/// that is too long is truncated, and says so.
pub(super) fn result_text(task: &Task) -> String {
    let parts = task.artifacts.iter().flatten().flat_map(|artifact| &artifact.parts);
    match join_parts(parts) {
        text if text.is_empty() => status_text(&task.status),
        text => text,
    }
}

pub(super) fn status_text(status: &TaskStatus) -> String {
    join_parts(status.message.iter().flat_map(|message| &message.parts))
}

fn join_parts<'a>(parts: impl Iterator<Item = &'a Part>) -> String {
    let texts = parts.map(|part| match &part.content {
        PartContent::Text(text) => text.clone(),
        PartContent::Data(data) => data.to_string(),
        PartContent::Url(url) => url.clone(),
        PartContent::Raw(bytes) => format!("[{} bytes, not shown]", bytes.len()),
    });
    AnswerText::new(&texts.collect::<Vec<_>>().join("\n\n")).into_string()
}

pub(super) fn reply_entry(text: &str) -> ModelReply {
    let content = vec![ContentBlock::Text(text.into())];
    ModelReply {
        message: AssistantMessage { content, opaque: Value::Null },
        usage: TokenUsage::default(),
        stop: StopReason::EndOfTurn,
    }
}
