//! Items of a provider as they are kept: without what the message says in our own words, so that a
//! transcript does not hold every text and every argument twice. Only what can be put back exactly
//! is left out; a `null` marks its place.

use rig_core::message::AssistantContent;
use serde_json::Value;

/// Where the formats have the words of a text or a thought.
const TEXT_POINTERS: [&str; 6] = [
    "/text",
    "/content/0/text",
    "/thinking",
    "/summary/0/text",
    "/reasoning_content",
    "/reasoning",
];

/// Where they have arguments as an object, and where as a text.
const ARGUMENT_OBJECT_POINTERS: [&str; 2] = ["/input", "/functionCall/args"];
const ARGUMENT_TEXT_POINTERS: [&str; 2] = ["/arguments", "/function/arguments"];

/// The item of this block as it is kept.
pub(super) fn compact_item(block: &AssistantContent) -> Value {
    let Some(item) = block.native_item() else { return Value::Null };
    let mut item = item.clone();
    for (place, said) in duplicated_values(block) {
        if let Some(found) = item.pointer_mut(place)
            && *found == said
        {
            *found = Value::Null;
        }
    }
    item
}

/// The block with its item again.
pub(super) fn restore_item(block: AssistantContent, kept: &Value) -> AssistantContent {
    if kept.is_null() {
        return block;
    }
    let mut item = kept.clone();
    for (place, said) in duplicated_values(&block) {
        if let Some(found) = item.pointer_mut(place)
            && found.is_null()
        {
            *found = said;
        }
    }
    block.with_native(item)
}

/// What the block says, at each place where its item may say it.
fn duplicated_values(block: &AssistantContent) -> Vec<(&'static str, Value)> {
    let words = |text: &str| TEXT_POINTERS.map(|place| (place, Value::from(text))).to_vec();
    match block {
        AssistantContent::Text(text) => words(&text.text),
        AssistantContent::Reasoning(reasoning) => words(&reasoning.text),
        AssistantContent::ToolCall(call) => {
            let object = call.function.arguments_value();
            let text = Value::from(object.to_string());
            let objects = ARGUMENT_OBJECT_POINTERS.map(|place| (place, object.clone()));
            let texts = ARGUMENT_TEXT_POINTERS.map(|place| (place, text.clone()));
            objects.into_iter().chain(texts).collect()
        }
        _ => Vec::new(),
    }
}
