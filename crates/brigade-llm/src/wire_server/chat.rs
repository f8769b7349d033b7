//! OpenAI's chat completions.

use serde_json::{Value, json};

use super::{WireFault, add_result, called, data, joined, list, pieces, text_of, tool};
use crate::conversation::{
    Arguments, AssistantMessage, Content, Message, Reasoning, ToolCall, ToolResult,
};
use crate::model::{Reply, StopReason, ToolSpec};

/// What a body says, in our words.
#[derive(Default)]
pub(super) struct Read {
    pub(super) system: String,
    pub(super) messages: Vec<Message>,
    pub(super) tools: Vec<ToolSpec>,
    pub(super) max_output: Option<u32>,
}

pub(super) fn number(body: &Value, pointer: &str) -> Option<u32> {
    body.pointer(pointer).and_then(Value::as_u64).and_then(|number| number.try_into().ok())
}

pub(super) fn read(body: &Value) -> Read {
    let limit = number(body, "/max_completion_tokens").or_else(|| number(body, "/max_tokens"));
    let mut read = Read { max_output: limit, ..Read::default() };
    read.tools = list(body, "tools").map(|spec| tool(&spec["function"], "parameters")).collect();
    for message in list(body, "messages") {
        let text = joined(&message["content"]);
        match message["role"].as_str() {
            Some("system" | "developer") => read.system.push_str(&text),
            Some("tool") => {
                let id = text_of(message, "tool_call_id");
                let name = called(&read.messages, &id);
                let id = id.into();
                add_result(
                    &mut read.messages,
                    ToolResult { id, name, text: text.into(), failed: false },
                );
            }
            Some("assistant") => read.messages.push(assistant(message, text)),
            _ => read.messages.push(Message::user(text)),
        }
    }
    read
}

fn assistant(message: &Value, text: String) -> Message {
    let mut content = Vec::new();
    let thought = ["reasoning_content", "reasoning"]
        .into_iter()
        .map(|name| text_of(message, name))
        .find(|thought| !thought.is_empty());
    if let Some(thought) = thought {
        content.push(Content::Reasoning(Reasoning { text: thought.into(), opaque: Value::Null }));
    }
    if !text.is_empty() {
        content.push(Content::Text(text.into()));
    }
    for call in list(message, "tool_calls") {
        let arguments = text_of(&call["function"], "arguments");
        content.push(Content::Call(ToolCall {
            id: text_of(call, "id").into(),
            name: text_of(&call["function"], "name").into(),
            arguments: parsed(&arguments),
            opaque: call.clone(),
        }));
    }
    Message::Assistant(AssistantMessage { content, opaque: Value::Null }.into())
}

/// Arguments that come as a text.
pub(super) fn parsed(text: &str) -> Arguments {
    match serde_json::from_str(text) {
        Ok(value) => Arguments::Json(value),
        Err(error) => Arguments::Malformed { problem: error.to_string().into() },
    }
}

/// Arguments as a text; malformed ones are cut off.
pub(super) fn written(arguments: &Arguments) -> String {
    match arguments {
        Arguments::Json(value) => value.to_string(),
        Arguments::Malformed { .. } => r#"{"path": "/et"#.into(),
    }
}

pub(super) fn frames(model: &str, reply: &Reply) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        data(&json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
        }))
    };
    let mut frames = vec![chunk(json!({ "role": "assistant", "content": "" }), Value::Null)];
    let mut calls = 0;
    for content in &reply.message.content {
        match content {
            Content::Text(text) => {
                let texts = pieces(text);
                frames.extend(texts.map(|text| chunk(json!({ "content": text }), Value::Null)));
            }
            Content::Reasoning(thought) => frames.extend(
                pieces(&thought.text)
                    .map(|text| chunk(json!({ "reasoning_content": text }), Value::Null)),
            ),
            Content::Call(call) => {
                let fragment = |fields: Value| {
                    let mut fields = fields;
                    fields["index"] = json!(calls);
                    chunk(json!({ "tool_calls": [fields] }), Value::Null)
                };
                let function = json!({ "name": call.name, "arguments": "" });
                frames.push(fragment(
                    json!({ "id": call.id, "type": "function", "function": function }),
                ));
                let arguments = written(&call.arguments);
                frames.extend(
                    pieces(&arguments)
                        .map(|text| fragment(json!({ "function": { "arguments": text } }))),
                );
                calls += 1;
            }
        }
    }
    let finish = match reply.stop {
        StopReason::Length => "length",
        StopReason::Filtered => "content_filter",
        StopReason::EndOfTurn if calls > 0 => "tool_calls",
        StopReason::EndOfTurn => "stop",
    };
    frames.push(chunk(json!({}), json!(finish)));
    let usage = &reply.usage;
    frames.push(data(&json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model,
        "choices": [],
        "usage": {
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "total_tokens": usage.total(),
            "prompt_tokens_details": { "cached_tokens": usage.cached },
        },
    })));
    frames.push("data: [DONE]\n\n".into());
    frames
}

pub(super) fn failure(fault: WireFault) -> String {
    let (code, text) = match fault {
        WireFault::Overloaded => ("server_error", "The server is overloaded."),
        WireFault::RateLimited => ("rate_limit_exceeded", "Rate limit reached."),
    };
    data(&json!({ "error": { "message": text, "type": code, "code": code } }))
}
