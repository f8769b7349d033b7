//! OpenAI's Responses API.

use serde_json::{Value, json};

use super::chat::{ParsedBody, number_at, parse_arguments, write_arguments};
use super::{
    WireFault, add_result, array_items, called_tool_name, join_text, split_in_two, text_field,
    tool_spec,
};
use crate::conversation::{
    AssistantMessage, ChatMessage, ContentBlock, ReasoningBlock, ToolCall, ToolResult,
};
use crate::model::{ModelReply, StopReason};

pub(super) fn parse_body(body: &Value) -> ParsedBody {
    let mut parsed = ParsedBody {
        system: text_field(body, "instructions"),
        max_output: number_at(body, "/max_output_tokens"),
        ..ParsedBody::default()
    };
    parsed.tools = array_items(body, "tools").map(|spec| tool_spec(spec, "parameters")).collect();
    for item in array_items(body, "input") {
        match item["type"].as_str() {
            Some("function_call_output") => {
                let id = text_field(item, "call_id");
                let name = called_tool_name(&parsed.messages, &id);
                let text = join_text(&item["output"]).into();
                add_result(
                    &mut parsed.messages,
                    ToolResult { id: id.into(), name, text, failed: false },
                );
            }
            Some("function_call") => push_content(
                &mut parsed.messages,
                ContentBlock::Call(ToolCall {
                    id: text_field(item, "call_id").into(),
                    name: text_field(item, "name").into(),
                    arguments: parse_arguments(&text_field(item, "arguments")),
                    opaque: item.clone(),
                }),
            ),
            Some("reasoning") => push_content(
                &mut parsed.messages,
                ContentBlock::Reasoning(ReasoningBlock {
                    text: join_text(&item["summary"]).into(),
                    opaque: item.clone(),
                }),
            ),
            _ => {
                let text = join_text(&item["content"]);
                match item["role"].as_str() {
                    Some("assistant") => {
                        push_content(&mut parsed.messages, ContentBlock::Text(text.into()))
                    }
                    Some("system" | "developer") => parsed.system.push_str(&text),
                    _ => parsed.messages.push(ChatMessage::user(text)),
                }
            }
        }
    }
    parsed
}

/// Appends the content to the last assistant message: items of one message follow each other.
fn push_content(messages: &mut Vec<ChatMessage>, content: ContentBlock) {
    let mut message = match messages.pop() {
        Some(ChatMessage::Assistant(message)) => AssistantMessage::clone(&message),
        before => {
            messages.extend(before);
            AssistantMessage::default()
        }
    };
    message.content.push(content);
    messages.push(ChatMessage::Assistant(message.into()));
}

struct EventFrames {
    frames: Vec<String>,
}

impl EventFrames {
    fn push(&mut self, kind: &str, mut event: Value) {
        event["type"] = json!(kind);
        event["sequence_number"] = json!(self.frames.len());
        self.frames.push(format!("event: {kind}\ndata: {event}\n\n"));
    }
}

pub(super) fn reply_frames(model: &str, reply: &ModelReply) -> Vec<String> {
    let response = |status: &str| json!({ "id": "resp_1", "object": "response", "model": model, "status": status, "output": [] });
    let mut stream = EventFrames { frames: Vec::new() };
    stream.push("response.created", json!({ "response": response("in_progress") }));
    let mut output = Vec::new();
    for (index, content) in reply.message.content.iter().enumerate() {
        output.push(push_item(&mut stream, index, content));
    }
    let usage = &reply.usage;
    let mut last = response("completed");
    last["output"] = json!(output);
    last["usage"] = json!({
        "input_tokens": usage.input,
        "input_tokens_details": { "cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written },
        "output_tokens": usage.output,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": usage.total(),
    });
    let reason = match reply.stop {
        StopReason::EndOfTurn => None,
        StopReason::Length => Some("max_output_tokens"),
        StopReason::Filtered => Some("content_filter"),
    };
    match reason {
        None => stream.push("response.completed", json!({ "response": last })),
        Some(reason) => {
            last["status"] = json!("incomplete");
            last["incomplete_details"] = json!({ "reason": reason });
            stream.push("response.incomplete", json!({ "response": last }));
        }
    }
    stream.frames
}

/// Writes the events of one item and returns the completed item.
fn push_item(stream: &mut EventFrames, index: usize, content: &ContentBlock) -> Value {
    let (started, done) = match content {
        ContentBlock::Text(text) => {
            let id = format!("msg_{index}");
            let item = |status: &str, content: Value| json!({ "id": id, "type": "message", "role": "assistant", "status": status, "content": content });
            let part = json!({ "type": "output_text", "text": text, "annotations": [] });
            (item("in_progress", json!([])), item("completed", json!([part])))
        }
        ContentBlock::Reasoning(thought) => {
            let item = |summary: Value| {
                json!({
                    "id": format!("rs_{index}"), "type": "reasoning", "summary": summary,
                    "encrypted_content": format!("sealed:{}", thought.text),
                })
            };
            let part = json!({ "type": "summary_text", "text": thought.text });
            (item(json!([])), item(json!([part])))
        }
        ContentBlock::Call(call) => {
            let item = |status: &str, arguments: &str| {
                json!({
                    "id": format!("fc_{index}"), "type": "function_call", "status": status,
                    "call_id": call.id, "name": call.name, "arguments": arguments,
                })
            };
            (item("in_progress", ""), item("completed", &write_arguments(&call.arguments)))
        }
    };
    let id = started["id"].clone();
    stream.push("response.output_item.added", json!({ "output_index": index, "item": started }));
    let at = |delta: &str| json!({ "item_id": id, "output_index": index, "delta": delta });
    match content {
        ContentBlock::Text(text) => {
            for piece in split_in_two(text) {
                let mut event = at(piece);
                event["content_index"] = json!(0);
                stream.push("response.output_text.delta", event);
            }
        }
        ContentBlock::Reasoning(thought) => {
            for piece in split_in_two(&thought.text) {
                let mut event = at(piece);
                event["summary_index"] = json!(0);
                stream.push("response.reasoning_summary_text.delta", event);
            }
        }
        ContentBlock::Call(call) => {
            for piece in split_in_two(&write_arguments(&call.arguments)) {
                stream.push("response.function_call_arguments.delta", at(piece));
            }
        }
    }
    stream.push("response.output_item.done", json!({ "output_index": index, "item": done }));
    done
}

pub(super) fn failure_frame(fault: WireFault) -> String {
    let (code, text) = match fault {
        WireFault::Overloaded => ("server_error", "The server is overloaded."),
        WireFault::RateLimited => ("rate_limit_exceeded", "Rate limit reached."),
    };
    let error = json!({ "code": code, "message": text });
    let response =
        json!({ "id": "resp_1", "object": "response", "status": "failed", "error": error });
    let event = json!({ "type": "response.failed", "response": response });
    format!("event: response.failed\ndata: {event}\n\n")
}
