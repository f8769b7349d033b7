//! Translates our conversation to rig's types.

use std::collections::BTreeSet;

use rig_core::completion::{
    self, CompletionRequest, GenerationOptions, OnUnsupported, ToolDefinition,
};
use rig_core::message::{
    self as rig, AssistantContent, CallId, ToolFunction, ToolName, ToolResultContent, UserContent,
};
use serde_json::{Map, Value, json};

use super::reply::ReplyOrigin;
use super::{ProviderOptions, native_items};
use crate::conversation::{
    AssistantMessage, ChatMessage, ContentBlock, ToolArguments, ToolCall, ToolResult,
};
use crate::model::{ModelRequest, ReasoningEffort};

pub(super) fn translate_request(
    request: &ModelRequest,
    options: &ProviderOptions,
) -> CompletionRequest {
    let mut history = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        history.push(rig::Message::system(&*request.system));
    }
    for (message_index, message) in request.messages.iter().enumerate() {
        history.extend(translate_message(message_index, message));
    }
    let mut completion = CompletionRequest::new("");
    completion.chat_history = history;
    completion.tools = tool_definitions(request);
    completion.temperature = request.temperature;
    completion.max_tokens = Some(request.max_output.into());
    if let Some(effort) = request.effort {
        // Models without this setting ignore it.
        completion.options = GenerationOptions::new()
            .reasoning(match effort {
                ReasoningEffort::Low => completion::Effort::Low,
                ReasoningEffort::Medium => completion::Effort::Medium,
                ReasoningEffort::High => completion::Effort::High,
            })
            .on_unsupported(OnUnsupported::Ignore);
    }
    if !options.extra.is_empty() {
        completion.additional_params = Some(Value::Object(options.extra.clone()));
    }
    completion
}

/// Requests the Responses API without server-side state: the transcript is ours. Reasoning is
/// returned encrypted instead.
pub(super) fn make_stateless(mut completion: CompletionRequest) -> CompletionRequest {
    let mut params = match completion.additional_params.take() {
        Some(Value::Object(params)) => params,
        _ => Map::new(),
    };
    params.entry("store").or_insert(json!(false));
    params.entry("include").or_insert(json!(["reasoning.encrypted_content"]));
    completion.additional_params = Some(Value::Object(params));
    completion
}

/// Returns true for models without reasoning. OpenAI rejects a request for their encrypted
/// reasoning.
pub(super) fn is_without_reasoning(model: &str) -> bool {
    ["gpt-3", "gpt-4", "chatgpt-4"].iter().any(|family| model.starts_with(family))
}

fn tool_definitions(request: &ModelRequest) -> Vec<ToolDefinition> {
    let known = request.tools.iter().filter_map(|tool| {
        let name = ToolName::new(&*tool.name).ok()?;
        Some(ToolDefinition::new(name, &*tool.description, (*tool.parameters).clone()))
    });
    let mut tools: Vec<_> = known.collect();
    if tools.is_empty() {
        // rig turns the calls of a request without tools into prose, which teaches a model to write
        // its calls as prose.
        let called: BTreeSet<&str> = request
            .messages
            .iter()
            .filter_map(|message| match message {
                ChatMessage::Assistant(message) => Some(message.calls().map(|call| &*call.name)),
                ChatMessage::User(_) | ChatMessage::Results(_) => None,
            })
            .flatten()
            .collect();
        tools.extend(called.into_iter().filter_map(|name| {
            let parameters = json!({ "type": "object", "properties": {} });
            let description = "No longer available.";
            Some(ToolDefinition::new(ToolName::new(name).ok()?, description, parameters))
        }));
    }
    tools
}

fn translate_message(message_index: usize, message: &ChatMessage) -> Option<rig::Message> {
    match message {
        ChatMessage::User(user) => {
            Some(rig::Message::User { content: vec![UserContent::text(&*user.text)] })
        }
        ChatMessage::Assistant(message) => translate_assistant(message_index, message),
        ChatMessage::Results(results) => {
            let results = results.iter().enumerate();
            // Results follow the message whose calls they answer.
            let content = results.map(|(position, result)| {
                translate_result(message_index.wrapping_sub(1), position, result)
            });
            let content: Vec<_> = content.collect();
            (!content.is_empty()).then_some(rig::Message::User { content })
        }
    }
}

fn translate_assistant(message_index: usize, message: &AssistantMessage) -> Option<rig::Message> {
    let origin = ReplyOrigin::read(&message.opaque);
    let mut calls = 0;
    let blocks = message.content.iter().enumerate().map(|(position, content)| match content {
        ContentBlock::Text(text) => {
            let block = AssistantContent::Text(rig::Text::new(&**text));
            match origin.as_ref().and_then(|origin| origin.items.get(&position)) {
                Some(item) => native_items::restore_item(block, item),
                None => block,
            }
        }
        ContentBlock::Reasoning(reasoning) => {
            let block = AssistantContent::Reasoning(rig::Reasoning {
                text: reasoning.text.to_string(),
                redacted: reasoning.text.is_empty(),
                native: None,
            });
            native_items::restore_item(block, &reasoning.opaque)
        }
        ContentBlock::Call(call) => {
            calls += 1;
            translate_call(message_index, calls - 1, call)
        }
    });
    let blocks: Vec<_> = blocks.collect();
    let turn = rig::AssistantMessage::new(blocks).with_origin(origin.map(|origin| origin.rig));
    (!turn.content.is_empty()).then_some(rig::Message::Assistant(turn))
}

fn translate_call(message_index: usize, position: usize, call: &ToolCall) -> AssistantContent {
    // Malformed arguments are not sent back; the result describes the problem.
    let arguments = match &call.arguments {
        ToolArguments::Json(value) => value.clone(),
        ToolArguments::Malformed { .. } => json!({}),
    };
    let function = ToolFunction::new(tool_name(&call.name), arguments);
    let block = AssistantContent::ToolCall(rig::ToolCall::new(
        call_id(message_index, position, &call.id),
        function,
    ));
    native_items::restore_item(block, &call.opaque)
}

fn translate_result(message_index: usize, position: usize, result: &ToolResult) -> UserContent {
    UserContent::ToolResult(rig::ToolResult {
        call: call_id(message_index, position, &result.id),
        name: tool_name(&result.name),
        content: vec![ToolResultContent::text(&*result.text)],
        is_error: result.failed,
    })
}

/// Returns the call's id, or one made from its position.
fn call_id(message_index: usize, position: usize, id: &str) -> CallId {
    match id.is_empty() {
        true => CallId::from_wire(format!("call_{message_index}_{position}")),
        false => CallId::from_wire(id),
    }
}

fn tool_name(name: &str) -> ToolName {
    ToolName::new(name).or_else(|_| ToolName::new("unnamed")).expect("a name that is not empty")
}
