//! Our conversation in rig's words.

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
    for (at, message) in request.messages.iter().enumerate() {
        history.extend(translate_message(at, message));
    }
    let mut asked = CompletionRequest::new("");
    asked.chat_history = history;
    asked.tools = tool_definitions(request);
    asked.temperature = request.temperature;
    asked.max_tokens = Some(request.max_output.into());
    if let Some(effort) = request.effort {
        // A model that cannot be told how much to think is asked all the same.
        asked.options = GenerationOptions::new()
            .reasoning(match effort {
                ReasoningEffort::Low => completion::Effort::Low,
                ReasoningEffort::Medium => completion::Effort::Medium,
                ReasoningEffort::High => completion::Effort::High,
            })
            .on_unsupported(OnUnsupported::Ignore);
    }
    if !options.extra.is_empty() {
        asked.additional_params = Some(Value::Object(options.extra.clone()));
    }
    asked
}

/// For Responses: the transcript is ours, so the provider keeps none, and thoughts come back to us
/// encrypted instead.
pub(super) fn make_stateless(mut asked: CompletionRequest) -> CompletionRequest {
    let mut params = match asked.additional_params.take() {
        Some(Value::Object(params)) => params,
        _ => Map::new(),
    };
    params.entry("store").or_insert(json!(false));
    params.entry("include").or_insert(json!(["reasoning.encrypted_content"]));
    asked.additional_params = Some(Value::Object(params));
    asked
}

/// OpenAI refuses a request for encrypted thoughts to a model that has none.
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
        // rig turns the calls of a request without tools into prose, which teaches a model to
        // write its calls as prose.
        let called: BTreeSet<&str> = request
            .messages
            .iter()
            .filter_map(|message| match message {
                ChatMessage::Assistant(said) => Some(said.calls().map(|call| &*call.name)),
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

fn translate_message(at: usize, message: &ChatMessage) -> Option<rig::Message> {
    match message {
        ChatMessage::User(user) => {
            Some(rig::Message::User { content: vec![UserContent::text(&*user.text)] })
        }
        ChatMessage::Assistant(said) => translate_assistant(at, said),
        ChatMessage::Results(results) => {
            let results = results.iter().enumerate();
            // Results stand right behind the message whose calls they answer.
            let content =
                results.map(|(place, result)| translate_result(at.wrapping_sub(1), place, result));
            let content: Vec<_> = content.collect();
            (!content.is_empty()).then_some(rig::Message::User { content })
        }
    }
}

fn translate_assistant(at: usize, said: &AssistantMessage) -> Option<rig::Message> {
    let origin = ReplyOrigin::read(&said.opaque);
    let mut calls = 0;
    let blocks = said.content.iter().enumerate().map(|(place, content)| match content {
        ContentBlock::Text(text) => {
            let block = AssistantContent::Text(rig::Text::new(&**text));
            match origin.as_ref().and_then(|origin| origin.items.get(&place)) {
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
            translate_call(at, calls - 1, call)
        }
    });
    let blocks: Vec<_> = blocks.collect();
    let turn = rig::AssistantMessage::new(blocks).with_origin(origin.map(|origin| origin.rig));
    (!turn.content.is_empty()).then_some(rig::Message::Assistant(turn))
}

fn translate_call(at: usize, place: usize, call: &ToolCall) -> AssistantContent {
    // What was malformed goes back without arguments; the result says what was wrong.
    let arguments = match &call.arguments {
        ToolArguments::Json(value) => value.clone(),
        ToolArguments::Malformed { .. } => json!({}),
    };
    let function = ToolFunction::new(tool_name(&call.name), arguments);
    let block =
        AssistantContent::ToolCall(rig::ToolCall::new(call_id(at, place, &call.id), function));
    native_items::restore_item(block, &call.opaque)
}

fn translate_result(at: usize, place: usize, result: &ToolResult) -> UserContent {
    UserContent::ToolResult(rig::ToolResult {
        call: call_id(at, place, &result.id),
        name: tool_name(&result.name),
        content: vec![ToolResultContent::text(&*result.text)],
        is_error: result.failed,
    })
}

/// A call without an id is found by its place.
fn call_id(at: usize, place: usize, id: &str) -> CallId {
    match id.is_empty() {
        true => CallId::from_wire(format!("call_{at}_{place}")),
        false => CallId::from_wire(id),
    }
}

fn tool_name(name: &str) -> ToolName {
    ToolName::new(name).or_else(|_| ToolName::new("unnamed")).expect("a name that is not empty")
}
