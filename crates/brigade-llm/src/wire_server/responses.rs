//! OpenAI's Responses.

use serde_json::{Value, json};

use super::chat::{Read, number, parsed, written};
use super::{WireFault, add_result, called, joined, list, pieces, text_of, tool};
use crate::conversation::{AssistantMessage, Content, Message, Reasoning, ToolCall, ToolResult};
use crate::model::{Reply, StopReason};

pub(super) fn read(body: &Value) -> Read {
    let mut read = Read {
        system: text_of(body, "instructions"),
        max_output: number(body, "/max_output_tokens"),
        ..Read::default()
    };
    read.tools = list(body, "tools").map(|spec| tool(spec, "parameters")).collect();
    for item in list(body, "input") {
        match item["type"].as_str() {
            Some("function_call_output") => {
                let id = text_of(item, "call_id");
                let name = called(&read.messages, &id);
                let text = joined(&item["output"]).into();
                add_result(
                    &mut read.messages,
                    ToolResult { id: id.into(), name, text, failed: false },
                );
            }
            Some("function_call") => add(
                &mut read.messages,
                Content::Call(ToolCall {
                    id: text_of(item, "call_id").into(),
                    name: text_of(item, "name").into(),
                    arguments: parsed(&text_of(item, "arguments")),
                    opaque: item.clone(),
                }),
            ),
            Some("reasoning") => add(
                &mut read.messages,
                Content::Reasoning(Reasoning {
                    text: joined(&item["summary"]).into(),
                    opaque: item.clone(),
                }),
            ),
            _ => {
                let text = joined(&item["content"]);
                match item["role"].as_str() {
                    Some("assistant") => add(&mut read.messages, Content::Text(text.into())),
                    Some("system" | "developer") => read.system.push_str(&text),
                    _ => read.messages.push(Message::user(text)),
                }
            }
        }
    }
    read
}

/// Items of one turn come one after the other.
fn add(messages: &mut Vec<Message>, content: Content) {
    let mut said = match messages.pop() {
        Some(Message::Assistant(said)) => AssistantMessage::clone(&said),
        before => {
            messages.extend(before);
            AssistantMessage::default()
        }
    };
    said.content.push(content);
    messages.push(Message::Assistant(said.into()));
}

struct Stream {
    frames: Vec<String>,
}

impl Stream {
    fn event(&mut self, kind: &str, mut event: Value) {
        event["type"] = json!(kind);
        event["sequence_number"] = json!(self.frames.len());
        self.frames.push(format!("event: {kind}\ndata: {event}\n\n"));
    }
}

pub(super) fn frames(model: &str, reply: &Reply) -> Vec<String> {
    let response = |status: &str| json!({ "id": "resp_1", "object": "response", "model": model, "status": status, "output": [] });
    let mut stream = Stream { frames: Vec::new() };
    stream.event("response.created", json!({ "response": response("in_progress") }));
    let mut output = Vec::new();
    for (place, content) in reply.message.content.iter().enumerate() {
        output.push(item(&mut stream, place, content));
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
        None => stream.event("response.completed", json!({ "response": last })),
        Some(reason) => {
            last["status"] = json!("incomplete");
            last["incomplete_details"] = json!({ "reason": reason });
            stream.event("response.incomplete", json!({ "response": last }));
        }
    }
    stream.frames
}

/// The events of one item, and the item as it is when they are over.
fn item(stream: &mut Stream, place: usize, content: &Content) -> Value {
    let (begun, done) = match content {
        Content::Text(text) => {
            let id = format!("msg_{place}");
            let item = |status: &str, content: Value| json!({ "id": id, "type": "message", "role": "assistant", "status": status, "content": content });
            let part = json!({ "type": "output_text", "text": text, "annotations": [] });
            (item("in_progress", json!([])), item("completed", json!([part])))
        }
        Content::Reasoning(thought) => {
            let item = |summary: Value| {
                json!({
                    "id": format!("rs_{place}"), "type": "reasoning", "summary": summary,
                    "encrypted_content": format!("sealed:{}", thought.text),
                })
            };
            let part = json!({ "type": "summary_text", "text": thought.text });
            (item(json!([])), item(json!([part])))
        }
        Content::Call(call) => {
            let item = |status: &str, arguments: &str| {
                json!({
                    "id": format!("fc_{place}"), "type": "function_call", "status": status,
                    "call_id": call.id, "name": call.name, "arguments": arguments,
                })
            };
            (item("in_progress", ""), item("completed", &written(&call.arguments)))
        }
    };
    let id = begun["id"].clone();
    stream.event("response.output_item.added", json!({ "output_index": place, "item": begun }));
    let at = |delta: &str| json!({ "item_id": id, "output_index": place, "delta": delta });
    match content {
        Content::Text(text) => {
            for piece in pieces(text) {
                let mut event = at(piece);
                event["content_index"] = json!(0);
                stream.event("response.output_text.delta", event);
            }
        }
        Content::Reasoning(thought) => {
            for piece in pieces(&thought.text) {
                let mut event = at(piece);
                event["summary_index"] = json!(0);
                stream.event("response.reasoning_summary_text.delta", event);
            }
        }
        Content::Call(call) => {
            for piece in pieces(&written(&call.arguments)) {
                stream.event("response.function_call_arguments.delta", at(piece));
            }
        }
    }
    stream.event("response.output_item.done", json!({ "output_index": place, "item": done }));
    done
}

pub(super) fn failure(fault: WireFault) -> String {
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
