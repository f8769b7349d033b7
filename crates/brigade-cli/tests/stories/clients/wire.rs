//! The wire formats of four providers, as far as a scripted model needs them.

use serde_json::{Value, json};

/// The id prefix of the script's calls, to find their results.
const CALL_ID: &str = "call_of_script_";

#[derive(Clone, Copy)]
pub(crate) enum WireFormat {
    AnthropicMessages,
    OpenAiResponses,
    OpenAiChat,
    Gemini,
}

#[derive(Clone)]
pub(crate) struct OfferedTool {
    pub(crate) name: String,
    /// The group of the tool, if tools have groups.
    namespace: Option<String>,
    /// The client added its own argument to the schema.
    has_order: bool,
}

impl OfferedTool {
    /// Returns true for a tool of Brigade, and not a tool of the client with the same name.
    pub(crate) fn is_of_brigade(&self) -> bool {
        self.namespace.as_ref().unwrap_or(&self.name).contains("brigade")
    }
}

/// The argument that Gemini CLI adds to each tool.
const ORDER: &str = "wait_for_previous";

/// One reply of the model.
pub(crate) enum ModelTurn {
    Text(&'static str),
    /// A tool call. `index` is that of a call of the script, and `None` for a call in between.
    Call {
        index: Option<usize>,
        tool: OfferedTool,
        arguments: Value,
    },
}

impl WireFormat {
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        match path {
            _ if path.ends_with("/messages") => Some(Self::AnthropicMessages),
            _ if path.ends_with("/responses") => Some(Self::OpenAiResponses),
            _ if path.ends_with("/chat/completions") => Some(Self::OpenAiChat),
            _ if path.contains("enerateContent") => Some(Self::Gemini),
            _ => None,
        }
    }

    pub(crate) fn is_streamed(self, path: &str, body: &Value) -> bool {
        match self {
            Self::Gemini => path.contains(":stream"),
            _ => body["stream"] == true,
        }
    }

    pub(crate) fn offered_tools(self, body: &Value) -> Vec<OfferedTool> {
        let mut offered = Vec::new();
        let mut offer = |tool: &Value, namespace: Option<&Value>| {
            if let Some(name) = tool["name"].as_str() {
                let namespace = namespace.and_then(Value::as_str).map(str::to_owned);
                let has_order = tool.to_string().contains(ORDER);
                offered.push(OfferedTool { name: name.to_owned(), namespace, has_order });
            }
        };
        for tool in items(&body["tools"]) {
            match self {
                Self::AnthropicMessages => offer(tool, None),
                Self::OpenAiResponses if tool["type"] == "namespace" => {
                    items(&tool["tools"]).for_each(|inner| offer(inner, Some(&tool["name"])));
                }
                Self::OpenAiResponses => offer(tool, None),
                Self::OpenAiChat => offer(&tool["function"], None),
                Self::Gemini => {
                    items(&tool["functionDeclarations"]).for_each(|inner| offer(inner, None));
                }
            }
        }
        offered
    }

    /// Returns the results of the script's calls in order, as the model reads them.
    pub(crate) fn tool_results(self, body: &Value) -> Vec<String> {
        let of_script = |id: &Value| id.as_str().is_some_and(|id| id.starts_with(CALL_ID));
        match self {
            Self::AnthropicMessages => items(&body["messages"])
                .flat_map(|message| items(&message["content"]))
                .filter(|block| block["type"] == "tool_result" && of_script(&block["tool_use_id"]))
                .map(|block| readable(&block["content"]))
                .collect(),
            Self::OpenAiResponses => items(&body["input"])
                .filter(|item| {
                    item["type"] == "function_call_output" && of_script(&item["call_id"])
                })
                .map(|item| readable(&item["output"]))
                .collect(),
            Self::OpenAiChat => items(&body["messages"])
                .filter(|message| message["role"] == "tool" && of_script(&message["tool_call_id"]))
                .map(|message| readable(&message["content"]))
                .collect(),
            Self::Gemini => items(&body["contents"])
                .flat_map(|content| items(&content["parts"]))
                .filter_map(|part| part.get("functionResponse"))
                .map(|response| readable(&response["response"]))
                .collect(),
        }
    }

    /// Returns a whole reply.
    pub(crate) fn whole(self, turn: &ModelTurn) -> Value {
        match self {
            Self::AnthropicMessages => {
                let mut message = anthropic_message();
                message["content"] = json!([anthropic_block(turn)]);
                message["stop_reason"] = anthropic_stop(turn).into();
                message
            }
            Self::OpenAiResponses => openai_response(turn),
            Self::OpenAiChat => json!({
                "id": "chat", "object": "chat.completion", "created": 1, "model": "scripted",
                "choices": [{
                    "index": 0, "message": chat_message(turn), "finish_reason": chat_stop(turn),
                }],
                "usage": chat_usage(),
            }),
            Self::Gemini => gemini_reply(turn),
        }
    }

    /// Returns the reply as a stream of server-sent events.
    pub(crate) fn events(self, turn: &ModelTurn) -> String {
        match self {
            Self::AnthropicMessages => anthropic_events(turn).iter().map(named_event).collect(),
            Self::OpenAiResponses => responses_events(turn).iter().map(named_event).collect(),
            Self::OpenAiChat => {
                let chunk = |choices: Value| {
                    json!({
                        "id": "chat", "object": "chat.completion.chunk", "created": 1,
                        "model": "scripted", "choices": choices, "usage": chat_usage(),
                    })
                };
                let message = chat_message(turn);
                let message = chunk(json!([{"index": 0, "delta": message, "finish_reason": null}]));
                let stop = json!([{"index": 0, "delta": {}, "finish_reason": chat_stop(turn)}]);
                format!("data: {message}\n\ndata: {}\n\ndata: [DONE]\n\n", chunk(stop))
            }
            Self::Gemini => format!("data: {}\n\n", gemini_reply(turn)),
        }
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns the text of a content, the texts of its parts, or else its JSON.
fn readable(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) if parts.iter().all(|part| part["text"].is_string()) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect()
        }
        Value::Object(fields) if fields.len() == 1 && fields.contains_key("output") => {
            readable(&fields["output"])
        }
        other => other.to_string(),
    }
}

fn named_event(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or("message"))
}

fn call_id(index: Option<usize>) -> String {
    index.map_or_else(|| "call_in_between".to_owned(), |index| format!("{CALL_ID}{index}"))
}

fn anthropic_message() -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 100, "output_tokens": 20},
    })
}

fn anthropic_block(turn: &ModelTurn) -> Value {
    match turn {
        ModelTurn::Text(text) => json!({"type": "text", "text": text}),
        ModelTurn::Call { index, tool, arguments } => json!({
            "type": "tool_use", "id": call_id(*index), "name": tool.name, "input": arguments,
        }),
    }
}

fn anthropic_stop(turn: &ModelTurn) -> &'static str {
    if matches!(turn, ModelTurn::Text(_)) { "end_turn" } else { "tool_use" }
}

fn anthropic_events(turn: &ModelTurn) -> [Value; 6] {
    let mut start = anthropic_block(turn);
    let delta = match turn {
        ModelTurn::Text(text) => {
            start["text"] = "".into();
            json!({"type": "text_delta", "text": text})
        }
        ModelTurn::Call { arguments, .. } => {
            start["input"] = json!({});
            json!({"type": "input_json_delta", "partial_json": arguments.to_string()})
        }
    };
    [
        json!({"type": "message_start", "message": anthropic_message()}),
        json!({"type": "content_block_start", "index": 0, "content_block": start}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({
            "type": "message_delta",
            "delta": {"stop_reason": anthropic_stop(turn), "stop_sequence": null},
            "usage": {"output_tokens": 20},
        }),
        json!({"type": "message_stop"}),
    ]
}

fn openai_item(turn: &ModelTurn) -> Value {
    match turn {
        ModelTurn::Text(text) => json!({
            "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }),
        ModelTurn::Call { index, tool, arguments } => {
            let mut item = json!({
                "type": "function_call", "id": "fc_1", "call_id": call_id(*index),
                "name": tool.name, "arguments": arguments.to_string(), "status": "completed",
            });
            if let Some(namespace) = &tool.namespace {
                item["namespace"] = namespace.as_str().into();
            }
            item
        }
    }
}

fn openai_response(turn: &ModelTurn) -> Value {
    json!({
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed",
        "model": "scripted", "output": [openai_item(turn)],
        "usage": {
            "input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 120,
        },
    })
}

fn responses_events(turn: &ModelTurn) -> [Value; 4] {
    let item = openai_item(turn);
    let mut created = openai_response(turn);
    created["status"] = "in_progress".into();
    created["output"] = json!([]);
    [
        json!({"type": "response.created", "sequence_number": 0, "response": created}),
        json!({
            "type": "response.output_item.added", "sequence_number": 1, "output_index": 0,
            "item": item,
        }),
        json!({
            "type": "response.output_item.done", "sequence_number": 2, "output_index": 0,
            "item": item,
        }),
        json!({
            "type": "response.completed", "sequence_number": 3, "response": openai_response(turn),
        }),
    ]
}

fn chat_message(turn: &ModelTurn) -> Value {
    match turn {
        ModelTurn::Text(text) => json!({"role": "assistant", "content": text}),
        ModelTurn::Call { index, tool, arguments } => json!({
            "role": "assistant", "content": null,
            "tool_calls": [{
                "index": 0, "id": call_id(*index), "type": "function",
                "function": {"name": tool.name, "arguments": arguments.to_string()},
            }],
        }),
    }
}

fn chat_stop(turn: &ModelTurn) -> &'static str {
    if matches!(turn, ModelTurn::Text(_)) { "stop" } else { "tool_calls" }
}

fn chat_usage() -> Value {
    json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120})
}

fn gemini_reply(turn: &ModelTurn) -> Value {
    let part = match turn {
        ModelTurn::Text(text) => json!({"text": text}),
        ModelTurn::Call { tool, arguments, .. } => {
            let mut arguments = arguments.clone();
            if tool.has_order {
                arguments[ORDER] = true.into();
            }
            json!({"functionCall": {"name": tool.name, "args": arguments}})
        }
    };
    json!({
        "candidates": [{
            "content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0,
        }],
        "usageMetadata": {
            "promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120,
        },
        "modelVersion": "scripted",
    })
}
