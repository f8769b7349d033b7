//! rig's reply in our words.

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

/// Who made a message, as it is kept in the message: an item of a provider goes back only to the
/// same model over the same API, and everybody else gets plain words.
#[derive(Serialize, Deserialize)]
pub(super) struct ReplyOrigin {
    #[serde(rename = "from")]
    pub(super) rig: rig::Origin,
    /// The items of texts, by their place in the message.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) items: BTreeMap<usize, Value>,
}

impl ReplyOrigin {
    /// None where another version or another program wrote something else.
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
            // An image, or a step of a tool that the provider runs itself: we ask for neither.
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
            format!("the provider ended the reply for a reason of its own: {reason}"),
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

/// rig mends arguments that are cut off into plausible ones and says so. A call with half of its
/// arguments must not be carried out.
fn translate_call(call: rig::ToolCall, item: Value, limits: &TransportLimits) -> ToolCall {
    let id: Arc<str> = call.id.wire().into();
    let name: Arc<str> = call.function.name.as_str().into();
    let malformed = |problem: String| ToolArguments::Malformed { problem: problem.into() };
    let arguments = match &call.function.invalid_arguments {
        Some(text) if text.len() > limits.argument_bytes => malformed(arguments_too_long(limits)),
        Some(text) => malformed(match serde_json::from_str::<Value>(text) {
            Ok(_) => "the arguments are JSON, but no object".into(),
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
    // The item holds the arguments too, in the form that was refused.
    let opaque = match arguments {
        ToolArguments::Json(_) => item,
        ToolArguments::Malformed { .. } => Value::Null,
    };
    ToolCall { id, name, arguments, opaque }
}

fn arguments_too_long(limits: &TransportLimits) -> String {
    format!("the arguments are longer than {} bytes", limits.argument_bytes)
}

/// A reply that was cut off before the first argument has a last call that looks like one without
/// arguments.
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
