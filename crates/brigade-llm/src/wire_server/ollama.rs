//! Ollama's own chat API, one JSON value per line.

use serde_json::{Value, json};

use super::chat::{ParsedBody, number_at};
use super::{
    WireFault, add_result, array_items, called_tool_name, split_in_two, text_field, tool_spec,
};
use crate::conversation::{
    AssistantMessage, ChatMessage, ContentBlock, ReasoningBlock, ToolArguments, ToolCall,
    ToolResult,
};
use crate::model::{ModelReply, StopReason};

pub(super) fn parse_body(body: &Value) -> ParsedBody {
    let mut parsed =
        ParsedBody { max_output: number_at(body, "/options/num_predict"), ..ParsedBody::default() };
    parsed.tools =
        array_items(body, "tools").map(|spec| tool_spec(&spec["function"], "parameters")).collect();
    for message in array_items(body, "messages") {
        let text = text_field(message, "content");
        match message["role"].as_str() {
            Some("system") => parsed.system.push_str(&text),
            Some("assistant") => parsed.messages.push(parse_assistant(message, text)),
            Some("tool") => {
                let id = text_field(message, "tool_call_id");
                let name = match text_field(message, "tool_name") {
                    name if name.is_empty() => called_tool_name(&parsed.messages, &id),
                    name => name.into(),
                };
                let id = id.into();
                let text = text.into();
                add_result(&mut parsed.messages, ToolResult { id, name, text, failed: false });
            }
            _ => parsed.messages.push(ChatMessage::user(text)),
        }
    }
    parsed
}

fn parse_assistant(message: &Value, text: String) -> ChatMessage {
    let mut content = Vec::new();
    let thought = text_field(message, "thinking");
    if !thought.is_empty() {
        content.push(ContentBlock::Reasoning(ReasoningBlock {
            text: thought.into(),
            opaque: Value::Null,
        }));
    }
    if !text.is_empty() {
        content.push(ContentBlock::Text(text.into()));
    }
    for call in array_items(message, "tool_calls") {
        content.push(ContentBlock::Call(ToolCall {
            id: text_field(call, "id").into(),
            name: text_field(&call["function"], "name").into(),
            arguments: ToolArguments::Json(call["function"]["arguments"].clone()),
            opaque: call.clone(),
        }));
    }
    ChatMessage::Assistant(AssistantMessage { content, opaque: Value::Null }.into())
}

pub(super) fn reply_frames(model: &str, reply: &ModelReply) -> Vec<String> {
    let line = |mut fields: Value, done: bool| {
        fields["model"] = json!(model);
        fields["created_at"] = json!("2026-01-01T00:00:00Z");
        fields["done"] = json!(done);
        format!("{fields}\n")
    };
    let message = |mut fields: Value| {
        fields["role"] = json!("assistant");
        if fields.get("content").is_none() {
            fields["content"] = json!("");
        }
        line(json!({ "message": fields }), false)
    };
    let mut frames = Vec::new();
    for content in &reply.message.content {
        match content {
            ContentBlock::Text(text) => {
                frames.extend(split_in_two(text).map(|text| message(json!({ "content": text }))));
            }
            ContentBlock::Reasoning(thought) => frames.extend(
                split_in_two(&thought.text).map(|text| message(json!({ "thinking": text }))),
            ),
            ContentBlock::Call(call) => {
                let arguments = match &call.arguments {
                    ToolArguments::Json(arguments) => arguments.clone(),
                    ToolArguments::Malformed { .. } => json!(r#"{"path": "/et"#),
                };
                let function = json!({ "name": call.name, "arguments": arguments });
                let mut call_item = json!({ "function": function });
                if !call.id.is_empty() {
                    call_item["id"] = json!(call.id);
                }
                frames.push(message(json!({ "tool_calls": [call_item] })));
            }
        }
    }
    let reason = match reply.stop {
        StopReason::Length => "length",
        StopReason::EndOfTurn | StopReason::Filtered => "stop",
    };
    let usage = &reply.usage;
    frames.push(line(
        json!({
            "message": { "role": "assistant", "content": "" },
            "done_reason": reason,
            "prompt_eval_count": usage.input,
            "prompt_eval_cached_count": usage.cached,
            "eval_count": usage.output,
        }),
        true,
    ));
    frames
}

pub(super) fn failure_frame(fault: WireFault) -> String {
    let text = match fault {
        WireFault::Overloaded => "the server is overloaded",
        WireFault::RateLimited => "rate limit reached",
    };
    format!("{}\n", json!({ "error": text }))
}
