//! OpenAI's chat completions API.

use serde_json::{Value, json};

use super::{
    WireFault, add_result, array_items, called_tool_name, join_text, split_in_two, sse_data,
    text_field, tool_spec,
};
use crate::conversation::{
    AssistantMessage, ChatMessage, ContentBlock, ReasoningBlock, ToolArguments, ToolCall,
    ToolResult,
};
use crate::model::{ModelReply, StopReason, ToolSpec};

/// The contents of a request body.
#[derive(Default)]
pub(super) struct ParsedBody {
    pub(super) system: String,
    pub(super) messages: Vec<ChatMessage>,
    pub(super) tools: Vec<ToolSpec>,
    pub(super) max_output: Option<u32>,
}

pub(super) fn number_at(body: &Value, pointer: &str) -> Option<u32> {
    body.pointer(pointer).and_then(Value::as_u64).and_then(|number| number.try_into().ok())
}

pub(super) fn parse_body(body: &Value) -> ParsedBody {
    let limit =
        number_at(body, "/max_completion_tokens").or_else(|| number_at(body, "/max_tokens"));
    let mut parsed = ParsedBody { max_output: limit, ..ParsedBody::default() };
    parsed.tools =
        array_items(body, "tools").map(|spec| tool_spec(&spec["function"], "parameters")).collect();
    for message in array_items(body, "messages") {
        let text = join_text(&message["content"]);
        match message["role"].as_str() {
            Some("system" | "developer") => parsed.system.push_str(&text),
            Some("tool") => {
                let id = text_field(message, "tool_call_id");
                let name = called_tool_name(&parsed.messages, &id);
                let id = id.into();
                add_result(
                    &mut parsed.messages,
                    ToolResult { id, name, text: text.into(), failed: false },
                );
            }
            Some("assistant") => parsed.messages.push(parse_assistant(message, text)),
            _ => parsed.messages.push(ChatMessage::user(text)),
        }
    }
    parsed
}

fn parse_assistant(message: &Value, text: String) -> ChatMessage {
    let mut content = Vec::new();
    let thought = ["reasoning_content", "reasoning"]
        .into_iter()
        .map(|name| text_field(message, name))
        .find(|thought| !thought.is_empty());
    if let Some(thought) = thought {
        content.push(ContentBlock::Reasoning(ReasoningBlock {
            text: thought.into(),
            opaque: Value::Null,
        }));
    }
    if !text.is_empty() {
        content.push(ContentBlock::Text(text.into()));
    }
    for call in array_items(message, "tool_calls") {
        let arguments = text_field(&call["function"], "arguments");
        content.push(ContentBlock::Call(ToolCall {
            id: text_field(call, "id").into(),
            name: text_field(&call["function"], "name").into(),
            arguments: parse_arguments(&arguments),
            opaque: call.clone(),
        }));
    }
    ChatMessage::Assistant(AssistantMessage { content, opaque: Value::Null }.into())
}

/// Parses arguments that are sent as a text.
pub(super) fn parse_arguments(text: &str) -> ToolArguments {
    match serde_json::from_str(text) {
        Ok(value) => ToolArguments::Json(value),
        Err(error) => ToolArguments::Malformed { problem: error.to_string().into() },
    }
}

/// Returns arguments as a text; malformed ones are truncated.
pub(super) fn write_arguments(arguments: &ToolArguments) -> String {
    match arguments {
        ToolArguments::Json(value) => value.to_string(),
        ToolArguments::Malformed { .. } => r#"{"path": "/et"#.into(),
    }
}

pub(super) fn reply_frames(model: &str, reply: &ModelReply) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        sse_data(&json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
        }))
    };
    let mut frames = vec![chunk(json!({ "role": "assistant", "content": "" }), Value::Null)];
    let mut calls = 0;
    for content in &reply.message.content {
        match content {
            ContentBlock::Text(text) => {
                let texts = split_in_two(text);
                frames.extend(texts.map(|text| chunk(json!({ "content": text }), Value::Null)));
            }
            ContentBlock::Reasoning(thought) => frames.extend(
                split_in_two(&thought.text)
                    .map(|text| chunk(json!({ "reasoning_content": text }), Value::Null)),
            ),
            ContentBlock::Call(call) => {
                let fragment = |fields: Value| {
                    let mut fields = fields;
                    fields["index"] = json!(calls);
                    chunk(json!({ "tool_calls": [fields] }), Value::Null)
                };
                let function = json!({ "name": call.name, "arguments": "" });
                frames.push(fragment(
                    json!({ "id": call.id, "type": "function", "function": function }),
                ));
                let arguments = write_arguments(&call.arguments);
                frames.extend(
                    split_in_two(&arguments)
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
    frames.push(sse_data(&json!({
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

pub(super) fn failure_frame(fault: WireFault) -> String {
    let (code, text) = match fault {
        WireFault::Overloaded => ("server_error", "The server is overloaded."),
        WireFault::RateLimited => ("rate_limit_exceeded", "Rate limit reached."),
    };
    sse_data(&json!({ "error": { "message": text, "type": code, "code": code } }))
}
