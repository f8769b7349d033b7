//! Ollama's own chat, a JSON value per line.

use serde_json::{Value, json};

use super::chat::{Read, number};
use super::{WireFault, add_result, called, list, pieces, text_of, tool};
use crate::conversation::{
    Arguments, AssistantMessage, Content, Message, Reasoning, ToolCall, ToolResult,
};
use crate::model::{Reply, StopReason};

pub(super) fn read(body: &Value) -> Read {
    let mut read = Read { max_output: number(body, "/options/num_predict"), ..Read::default() };
    read.tools = list(body, "tools").map(|spec| tool(&spec["function"], "parameters")).collect();
    for message in list(body, "messages") {
        let text = text_of(message, "content");
        match message["role"].as_str() {
            Some("system") => read.system.push_str(&text),
            Some("assistant") => read.messages.push(assistant(message, text)),
            Some("tool") => {
                let id = text_of(message, "tool_call_id");
                let name = match text_of(message, "tool_name") {
                    name if name.is_empty() => called(&read.messages, &id),
                    name => name.into(),
                };
                let (id, text) = (id.into(), text.into());
                add_result(&mut read.messages, ToolResult { id, name, text, failed: false });
            }
            _ => read.messages.push(Message::user(text)),
        }
    }
    read
}

fn assistant(message: &Value, text: String) -> Message {
    let mut content = Vec::new();
    let thought = text_of(message, "thinking");
    if !thought.is_empty() {
        content.push(Content::Reasoning(Reasoning { text: thought.into(), opaque: Value::Null }));
    }
    if !text.is_empty() {
        content.push(Content::Text(text.into()));
    }
    for call in list(message, "tool_calls") {
        content.push(Content::Call(ToolCall {
            id: text_of(call, "id").into(),
            name: text_of(&call["function"], "name").into(),
            arguments: Arguments::Json(call["function"]["arguments"].clone()),
            opaque: call.clone(),
        }));
    }
    Message::Assistant(AssistantMessage { content, opaque: Value::Null }.into())
}

pub(super) fn frames(model: &str, reply: &Reply) -> Vec<String> {
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
            Content::Text(text) => {
                frames.extend(pieces(text).map(|text| message(json!({ "content": text }))));
            }
            Content::Reasoning(thought) => frames
                .extend(pieces(&thought.text).map(|text| message(json!({ "thinking": text })))),
            Content::Call(call) => {
                let arguments = match &call.arguments {
                    Arguments::Json(arguments) => arguments.clone(),
                    Arguments::Malformed { .. } => json!(r#"{"path": "/et"#),
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

pub(super) fn failure(fault: WireFault) -> String {
    let text = match fault {
        WireFault::Overloaded => "the server is overloaded",
        WireFault::RateLimited => "rate limit reached",
    };
    format!("{}\n", json!({ "error": text }))
}
