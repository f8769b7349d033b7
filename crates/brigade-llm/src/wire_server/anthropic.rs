//! Anthropic's messages.

use serde_json::{Value, json};

use super::chat::{Read, number, written};
use super::{WireFault, add_result, called, joined, list, pieces, text_of, tool};
use crate::conversation::{
    Arguments, AssistantMessage, Content, Message, Reasoning, ToolCall, ToolResult,
};
use crate::model::{Reply, StopReason};

pub(super) fn read(body: &Value) -> Read {
    let mut read = Read {
        system: joined(&body["system"]),
        max_output: number(body, "/max_tokens"),
        ..Read::default()
    };
    read.tools = list(body, "tools").map(|spec| tool(spec, "input_schema")).collect();
    for message in list(body, "messages") {
        if message["role"] == "assistant" {
            let content = match &message["content"] {
                Value::String(text) => vec![Content::Text(text.as_str().into())],
                _ => list(message, "content").filter_map(block).collect(),
            };
            let said = AssistantMessage { content, opaque: Value::Null };
            read.messages.push(Message::Assistant(said.into()));
            continue;
        }
        if let Value::String(text) = &message["content"] {
            read.messages.push(Message::user(text.as_str()));
        }
        for part in list(message, "content") {
            if part["type"] == "tool_result" {
                let id = text_of(part, "tool_use_id");
                let name = called(&read.messages, &id);
                let (id, text) = (id.into(), joined(&part["content"]).into());
                let failed = part["is_error"] == true;
                add_result(&mut read.messages, ToolResult { id, name, text, failed });
            } else {
                read.messages.push(Message::user(text_of(part, "text")));
            }
        }
    }
    read
}

fn block(block: &Value) -> Option<Content> {
    Some(match block["type"].as_str()? {
        "text" => Content::Text(text_of(block, "text").into()),
        "thinking" => Content::Reasoning(Reasoning {
            text: text_of(block, "thinking").into(),
            opaque: block.clone(),
        }),
        "redacted_thinking" => {
            Content::Reasoning(Reasoning { text: "".into(), opaque: block.clone() })
        }
        "tool_use" => Content::Call(ToolCall {
            id: text_of(block, "id").into(),
            name: text_of(block, "name").into(),
            arguments: Arguments::Json(block["input"].clone()),
            opaque: block.clone(),
        }),
        _ => return None,
    })
}

fn event(mut event: Value, kind: &str) -> String {
    event["type"] = json!(kind);
    format!("event: {kind}\ndata: {event}\n\n")
}

pub(super) fn frames(model: &str, reply: &Reply) -> Vec<String> {
    let usage = &reply.usage;
    let uncached = usage.input.saturating_sub(usage.cached + usage.cache_written);
    let counted = json!({
        "input_tokens": uncached,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.cache_written,
        "output_tokens": 1,
    });
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": counted,
    });
    let mut frames =
        vec![event(json!({ "message": message }), "message_start"), event(json!({}), "ping")];
    let mut calls = 0;
    for (index, content) in reply.message.content.iter().enumerate() {
        let (begun, deltas): (Value, Vec<Value>) = match content {
            Content::Text(text) => (
                json!({ "type": "text", "text": "" }),
                pieces(text).map(|text| json!({ "type": "text_delta", "text": text })).collect(),
            ),
            Content::Reasoning(thought) => {
                let words = pieces(&thought.text)
                    .map(|text| json!({ "type": "thinking_delta", "thinking": text }));
                let signature = format!("signed:{}", thought.text);
                let signed = json!({ "type": "signature_delta", "signature": signature });
                (
                    json!({ "type": "thinking", "thinking": "", "signature": "" }),
                    words.chain([signed]).collect(),
                )
            }
            Content::Call(call) => {
                calls += 1;
                let arguments = written(&call.arguments);
                let deltas = pieces(&arguments)
                    .map(|text| json!({ "type": "input_json_delta", "partial_json": text }));
                (
                    json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": {} }),
                    deltas.collect(),
                )
            }
        };
        let begun = json!({ "index": index, "content_block": begun });
        frames.push(event(begun, "content_block_start"));
        for delta in deltas {
            let delta = json!({ "index": index, "delta": delta });
            frames.push(event(delta, "content_block_delta"));
        }
        frames.push(event(json!({ "index": index }), "content_block_stop"));
    }
    let stop = match reply.stop {
        StopReason::Length => "max_tokens",
        StopReason::Filtered => "refusal",
        StopReason::EndOfTurn if calls > 0 => "tool_use",
        StopReason::EndOfTurn => "end_turn",
    };
    let delta = json!({ "stop_reason": stop, "stop_sequence": null });
    let counted = json!({ "output_tokens": usage.output });
    frames.push(event(json!({ "delta": delta, "usage": counted }), "message_delta"));
    frames.push(event(json!({}), "message_stop"));
    frames
}

pub(super) fn failure(fault: WireFault) -> String {
    let (kind, text) = match fault {
        WireFault::Overloaded => ("overloaded_error", "Overloaded"),
        WireFault::RateLimited => ("rate_limit_error", "Too many tokens"),
    };
    event(json!({ "error": { "type": kind, "message": text } }), "error")
}
