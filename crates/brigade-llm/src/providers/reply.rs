//! Translates rig's reply to our types.

use std::collections::BTreeMap;
use std::sync::Arc;

use rig_core::completion::{CompletionResponse, FinishReason};
use rig_core::message::{self as rig, AssistantContent};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{error_mapping, native_items};
use crate::conversation::{
    AssistantMessage, ContentBlock, ReasoningBlock, ToolArguments, ToolCall,
};
use crate::error::{ModelError, ModelErrorKind};
use crate::model::{ModelReply, StopReason, TokenUsage};
use crate::transport::TransportLimits;

/// The origin of a message, stored in the message. A provider's items go back only to the same
/// model over the same API; every other model gets plain text.
#[derive(Serialize, Deserialize)]
pub(super) struct ReplyOrigin {
    #[serde(rename = "from")]
    pub(super) rig: rig::Origin,
    /// The items of texts, by their index in the message.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) items: BTreeMap<usize, Value>,
}

impl ReplyOrigin {
    /// Returns `None` if another version or program wrote a different format.
    pub(super) fn read(opaque: &Value) -> Option<Self> {
        match opaque {
            Value::Null => None,
            opaque => Self::deserialize(opaque).ok(),
        }
    }
}

pub(super) fn translate_reply(
    response: CompletionResponse,
    limits: &TransportLimits,
) -> Result<ModelReply, ModelError> {
    let stop = stop_reason(&response)?;
    let usage = token_usage(&response);
    let mut origin = ReplyOrigin { rig: response.origin, items: BTreeMap::new() };
    origin.rig.response_model = None;
    origin.rig.response_id = None;
    let mut content = Vec::with_capacity(response.choice.len());
    for block in response.choice {
        let item = native_items::compact_item(&block);
        match block {
            AssistantContent::Text(text) => {
                if !item.is_null() {
                    origin.items.insert(content.len(), item);
                }
                content.push(ContentBlock::Text(text.text.into()));
            }
            AssistantContent::Reasoning(reasoning) => {
                content.push(ContentBlock::Reasoning(ReasoningBlock {
                    text: reasoning.text.into(),
                    opaque: item,
                }));
            }
            AssistantContent::ToolCall(call) => {
                content.push(ContentBlock::Call(translate_call(call, item, limits)))
            }
            // Images and steps of provider-side tools are ignored: we request neither.
            _ => {}
        }
    }
    if stop == StopReason::Length {
        reject_truncated_call(&mut content);
    }
    let opaque = serde_json::to_value(&origin).unwrap_or_default();
    Ok(ModelReply { message: AssistantMessage { content, opaque }, usage, stop })
}

fn stop_reason(response: &CompletionResponse) -> Result<StopReason, ModelError> {
    match (response.finish_reason(), &response.error) {
        (Some(FinishReason::ContentFilter), _) => Ok(StopReason::Filtered),
        (_, Some(error)) => Err(error_mapping::failed_reply_error(error)),
        (Some(FinishReason::Length), None) => Ok(StopReason::Length),
        (Some(FinishReason::Other(reason)), None) => Err(ModelError::new(
            ModelErrorKind::Garbage,
            format!("the provider ended the reply for an unknown reason: {reason}"),
        )),
        (_, None) => Ok(StopReason::EndOfTurn),
    }
}

fn token_usage(response: &CompletionResponse) -> TokenUsage {
    let usage = &response.usage;
    TokenUsage {
        input: usage.input_tokens.unwrap_or(0),
        cached: usage.cached_input_tokens.unwrap_or(0),
        cache_written: usage.cache_creation_input_tokens.unwrap_or(0),
        output: usage.output_tokens.unwrap_or(0),
    }
}

/// Translates a call. rig repairs truncated arguments to plausible ones and marks them as invalid.
/// Such a call must not be executed.
fn translate_call(call: rig::ToolCall, item: Value, limits: &TransportLimits) -> ToolCall {
    let id: Arc<str> = call.id.wire().into();
    let name: Arc<str> = call.function.name.as_str().into();
    let malformed = |problem: String| ToolArguments::Malformed { problem: problem.into() };
    let arguments = match &call.function.invalid_arguments {
        Some(text) if text.len() > limits.argument_bytes => malformed(arguments_too_long(limits)),
        Some(text) => malformed(match serde_json::from_str::<Value>(text) {
            Ok(_) => "the arguments are JSON, but not an object".into(),
            Err(error) => format!("the arguments are not JSON: {error}"),
        }),
        None => {
            let value = call.function.arguments_value();
            match serde_json::to_string(&value).map_or(usize::MAX, |text| text.len()) {
                length if length > limits.argument_bytes => malformed(arguments_too_long(limits)),
                _ => ToolArguments::Json(value),
            }
        }
    };
    // The item also holds the rejected arguments.
    let opaque = match arguments {
        ToolArguments::Json(_) => item,
        ToolArguments::Malformed { .. } => Value::Null,
    };
    ToolCall { id, name, arguments, opaque }
}

fn arguments_too_long(limits: &TransportLimits) -> String {
    format!("the arguments are longer than {} bytes", limits.argument_bytes)
}

/// Marks the last call of a truncated reply as malformed if it has no arguments: they may have been
/// cut off.
fn reject_truncated_call(content: &mut [ContentBlock]) {
    if let Some(ContentBlock::Call(call)) = content.last_mut()
        && matches!(&call.arguments, ToolArguments::Json(Value::Object(given)) if given.is_empty())
    {
        call.arguments = ToolArguments::Malformed {
            problem: "the reply was cut off before the arguments".into(),
        };
        call.opaque = Value::Null;
    }
}
