//! rig's reply in our words.

use std::collections::BTreeMap;
use std::sync::Arc;

use rig_core::completion::{CompletionResponse, FinishReason};
use rig_core::message::{self as rig, AssistantContent};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{errors, items};
use crate::conversation::{Arguments, AssistantMessage, Content, Reasoning, ToolCall};
use crate::error::{ErrorKind, ModelError};
use crate::model::{Reply, StopReason, TokenUsage};
use crate::transport::Limits;

/// Who made a message, as it is kept in the message: an item of a provider goes back only to the
/// same model over the same API, and everybody else gets plain words.
#[derive(Serialize, Deserialize)]
pub(super) struct Origin {
    #[serde(rename = "from")]
    pub(super) rig: rig::Origin,
    /// The items of texts, by their place in the message.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) items: BTreeMap<usize, Value>,
}

impl Origin {
    /// None where another version or another program wrote something else.
    pub(super) fn read(opaque: &Value) -> Option<Self> {
        match opaque {
            Value::Null => None,
            opaque => Self::deserialize(opaque).ok(),
        }
    }
}

pub(super) fn translate(
    response: CompletionResponse,
    limits: &Limits,
) -> Result<Reply, ModelError> {
    let stop = stop(&response)?;
    let usage = usage(&response);
    let mut origin = Origin { rig: response.origin, items: BTreeMap::new() };
    origin.rig.response_model = None;
    origin.rig.response_id = None;
    let mut content = Vec::with_capacity(response.choice.len());
    for block in response.choice {
        let item = items::kept(&block);
        match block {
            AssistantContent::Text(text) => {
                if !item.is_null() {
                    origin.items.insert(content.len(), item);
                }
                content.push(Content::Text(text.text.into()));
            }
            AssistantContent::Reasoning(reasoning) => {
                content.push(Content::Reasoning(Reasoning {
                    text: reasoning.text.into(),
                    opaque: item,
                }));
            }
            AssistantContent::ToolCall(call) => {
                content.push(Content::Call(tool_call(call, item, limits)))
            }
            // An image, or a step of a tool that the provider runs itself: we ask for neither.
            _ => {}
        }
    }
    if stop == StopReason::Length {
        refuse_cut_call(&mut content);
    }
    let opaque = serde_json::to_value(&origin).unwrap_or_default();
    Ok(Reply { message: AssistantMessage { content, opaque }, usage, stop })
}

fn stop(response: &CompletionResponse) -> Result<StopReason, ModelError> {
    match (response.finish_reason(), &response.error) {
        (Some(FinishReason::ContentFilter), _) => Ok(StopReason::Filtered),
        (_, Some(error)) => Err(errors::ended_badly(error)),
        (Some(FinishReason::Length), None) => Ok(StopReason::Length),
        (Some(FinishReason::Other(reason)), None) => Err(ModelError::new(
            ErrorKind::Garbage,
            format!("the provider ended the reply for a reason of its own: {reason}"),
        )),
        (_, None) => Ok(StopReason::EndOfTurn),
    }
}

fn usage(response: &CompletionResponse) -> TokenUsage {
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
fn tool_call(call: rig::ToolCall, item: Value, limits: &Limits) -> ToolCall {
    let id: Arc<str> = call.id.wire().into();
    let name: Arc<str> = call.function.name.as_str().into();
    let malformed = |problem: String| Arguments::Malformed { problem: problem.into() };
    let arguments = match &call.function.invalid_arguments {
        Some(text) if text.len() > limits.argument_bytes => malformed(too_long(limits)),
        Some(text) => malformed(match serde_json::from_str::<Value>(text) {
            Ok(_) => "the arguments are JSON, but no object".into(),
            Err(error) => format!("the arguments are not JSON: {error}"),
        }),
        None => {
            let value = call.function.arguments_value();
            match serde_json::to_string(&value).map_or(usize::MAX, |text| text.len()) {
                length if length > limits.argument_bytes => malformed(too_long(limits)),
                _ => Arguments::Json(value),
            }
        }
    };
    // The item holds the arguments too, in the form that was refused.
    let opaque = match arguments {
        Arguments::Json(_) => item,
        Arguments::Malformed { .. } => Value::Null,
    };
    ToolCall { id, name, arguments, opaque }
}

fn too_long(limits: &Limits) -> String {
    format!("the arguments are longer than {} bytes", limits.argument_bytes)
}

/// A reply that was cut off before the first argument has a last call that looks like one without
/// arguments.
fn refuse_cut_call(content: &mut [Content]) {
    if let Some(Content::Call(call)) = content.last_mut()
        && matches!(&call.arguments, Arguments::Json(Value::Object(given)) if given.is_empty())
    {
        call.arguments =
            Arguments::Malformed { problem: "the reply was cut off before the arguments".into() };
        call.opaque = Value::Null;
    }
}
