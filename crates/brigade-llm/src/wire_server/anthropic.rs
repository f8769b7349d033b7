//! Anthropic's Messages API.

use serde_json::{Value, json};

use super::chat::{ParsedBody, number_at, write_arguments};
use super::{
    WireFault, add_result, array_items, called_tool_name, join_text, split_in_two, text_field,
    tool_spec,
};
use crate::conversation::{
    AssistantMessage, ChatMessage, ContentBlock, ReasoningBlock, ToolArguments, ToolCall,
    ToolResult,
};
use crate::model::{ModelReply, StopReason};

pub(super) fn parse_body(body: &Value) -> ParsedBody {
    let mut parsed = ParsedBody {
        system: join_text(&body["system"]),
        max_output: number_at(body, "/max_tokens"),
        ..ParsedBody::default()
    };
    parsed.tools = array_items(body, "tools").map(|spec| tool_spec(spec, "input_schema")).collect();
    for message in array_items(body, "messages") {
        if message["role"] == "assistant" {
            let content = match &message["content"] {
                Value::String(text) => vec![ContentBlock::Text(text.as_str().into())],
                _ => array_items(message, "content").filter_map(parse_block).collect(),
            };
            let assistant = AssistantMessage { content, opaque: Value::Null };
            parsed.messages.push(ChatMessage::Assistant(assistant.into()));
            continue;
        }
        if let Value::String(text) = &message["content"] {
            parsed.messages.push(ChatMessage::user(text.as_str()));
        }
        for part in array_items(message, "content") {
            if part["type"] == "tool_result" {
                let id = text_field(part, "tool_use_id");
                let name = called_tool_name(&parsed.messages, &id);
                let id = id.into();
                let text = join_text(&part["content"]).into();
                let failed = part["is_error"] == true;
                add_result(&mut parsed.messages, ToolResult { id, name, text, failed });
            } else {
                parsed.messages.push(ChatMessage::user(text_field(part, "text")));
            }
        }
    }
    parsed
}

fn parse_block(block: &Value) -> Option<ContentBlock> {
    Some(match block["type"].as_str()? {
        "text" => ContentBlock::Text(text_field(block, "text").into()),
        "thinking" => ContentBlock::Reasoning(ReasoningBlock {
            text: text_field(block, "thinking").into(),
            opaque: block.clone(),
        }),
        "redacted_thinking" => {
            ContentBlock::Reasoning(ReasoningBlock { text: "".into(), opaque: block.clone() })
        }
        "tool_use" => ContentBlock::Call(ToolCall {
            id: text_field(block, "id").into(),
            name: text_field(block, "name").into(),
            arguments: ToolArguments::Json(block["input"].clone()),
            opaque: block.clone(),
        }),
        _ => return None,
    })
}

fn sse_event(mut event: Value, kind: &str) -> String {
    event["type"] = json!(kind);
    format!("event: {kind}\ndata: {event}\n\n")
}

pub(super) fn reply_frames(model: &str, reply: &ModelReply) -> Vec<String> {
    let usage = &reply.usage;
    let uncached = usage.input.saturating_sub(usage.cached + usage.cache_written);
    let counts = json!({
        "input_tokens": uncached,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.cache_written,
        "output_tokens": 1,
    });
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": counts,
    });
    let mut frames = vec![
        sse_event(json!({ "message": message }), "message_start"),
        sse_event(json!({}), "ping"),
    ];
    let mut calls = 0;
    for (index, content) in reply.message.content.iter().enumerate() {
        let (block, deltas): (Value, Vec<Value>) = match content {
            ContentBlock::Text(text) => (
                json!({ "type": "text", "text": "" }),
                split_in_two(text)
                    .map(|text| json!({ "type": "text_delta", "text": text }))
                    .collect(),
            ),
            ContentBlock::Reasoning(thought) => {
                let words = split_in_two(&thought.text)
                    .map(|text| json!({ "type": "thinking_delta", "thinking": text }));
                let signature = format!("signed:{}", thought.text);
                let signed = json!({ "type": "signature_delta", "signature": signature });
                (
                    json!({ "type": "thinking", "thinking": "", "signature": "" }),
                    words.chain([signed]).collect(),
                )
            }
            ContentBlock::Call(call) => {
                calls += 1;
                let arguments = write_arguments(&call.arguments);
                let deltas = split_in_two(&arguments)
                    .map(|text| json!({ "type": "input_json_delta", "partial_json": text }));
                (
                    json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": {} }),
                    deltas.collect(),
                )
            }
        };
        let block = json!({ "index": index, "content_block": block });
        frames.push(sse_event(block, "content_block_start"));
        for delta in deltas {
            let delta = json!({ "index": index, "delta": delta });
            frames.push(sse_event(delta, "content_block_delta"));
        }
        frames.push(sse_event(json!({ "index": index }), "content_block_stop"));
    }
    let stop = match reply.stop {
        StopReason::Length => "max_tokens",
        StopReason::Filtered => "refusal",
        StopReason::EndOfTurn if calls > 0 => "tool_use",
        StopReason::EndOfTurn => "end_turn",
    };
    let delta = json!({ "stop_reason": stop, "stop_sequence": null });
    let counts = json!({ "output_tokens": usage.output });
    frames.push(sse_event(json!({ "delta": delta, "usage": counts }), "message_delta"));
    frames.push(sse_event(json!({}), "message_stop"));
    frames
}

pub(super) fn failure_frame(fault: WireFault) -> String {
    let (kind, text) = match fault {
        WireFault::Overloaded => ("overloaded_error", "Overloaded"),
        WireFault::RateLimited => ("rate_limit_error", "Too many tokens"),
    };
    sse_event(json!({ "error": { "type": kind, "message": text } }), "error")
}
