//! Provider items in a compact form. An item as stored omits texts and arguments that the message
//! already holds. A `null` marks each omission, and only values that can be restored exactly are
//! omitted.

use rig_core::message::AssistantContent;
use serde_json::Value;

/// The locations of text and reasoning in the providers' formats.
const TEXT_POINTERS: [&str; 6] = [
    "/text",
    "/content/0/text",
    "/thinking",
    "/summary/0/text",
    "/reasoning_content",
    "/reasoning",
];

/// The locations of arguments as an object.
const ARGUMENT_OBJECT_POINTERS: [&str; 2] = ["/input", "/functionCall/args"];
/// The locations of arguments as a text.
const ARGUMENT_TEXT_POINTERS: [&str; 2] = ["/arguments", "/function/arguments"];

/// A value of a block, and a location where its item may repeat it.
struct PointerValue {
    pointer: &'static str,
    value: Value,
}

/// Returns the block's item without duplicated values.
pub(super) fn compact_item(block: &AssistantContent) -> Value {
    let Some(item) = block.native_item() else { return Value::Null };
    let mut item = item.clone();
    for duplicate in duplicated_values(block) {
        if let Some(found) = item.pointer_mut(duplicate.pointer)
            && *found == duplicate.value
        {
            *found = Value::Null;
        }
    }
    item
}

/// Returns the block with its item, in which the omitted values are restored.
pub(super) fn restore_item(block: AssistantContent, stored: &Value) -> AssistantContent {
    if stored.is_null() {
        return block;
    }
    let mut item = stored.clone();
    for duplicate in duplicated_values(&block) {
        if let Some(found) = item.pointer_mut(duplicate.pointer)
            && found.is_null()
        {
            *found = duplicate.value;
        }
    }
    block.with_native(item)
}

/// Returns the values of the block, with each location where its item may repeat them.
fn duplicated_values(block: &AssistantContent) -> Vec<PointerValue> {
    let text_values = |text: &str| {
        TEXT_POINTERS.map(|pointer| PointerValue { pointer, value: Value::from(text) }).into()
    };
    match block {
        AssistantContent::Text(text) => text_values(&text.text),
        AssistantContent::Reasoning(reasoning) => text_values(&reasoning.text),
        AssistantContent::ToolCall(call) => {
            let object = call.function.arguments_value();
            let text = Value::from(object.to_string());
            let objects = ARGUMENT_OBJECT_POINTERS
                .map(|pointer| PointerValue { pointer, value: object.clone() });
            let texts =
                ARGUMENT_TEXT_POINTERS.map(|pointer| PointerValue { pointer, value: text.clone() });
            objects.into_iter().chain(texts).collect()
        }
        _ => Vec::new(),
    }
}
