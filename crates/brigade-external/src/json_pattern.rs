//! Patterns of JSON values, such as `{ type = "result", subtype = "success" }`.

use serde::Deserialize;
use serde_json::{Map, Value};

/// A pattern of an object. Each of its fields must match the same field of the value: a table
/// matches an object, a list matches one of its elements, and every other value matches itself.
/// The value may have more fields.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct JsonPattern {
    fields: Map<String, Value>,
}

impl JsonPattern {
    pub(crate) fn matches(&self, value: &Value) -> bool {
        match_fields(&self.fields, value)
    }
}

fn match_fields(fields: &Map<String, Value>, value: &Value) -> bool {
    let Some(object) = value.as_object() else { return false };
    fields
        .iter()
        .all(|(name, pattern)| object.get(name).is_some_and(|value| match_value(pattern, value)))
}

fn match_value(pattern: &Value, value: &Value) -> bool {
    match pattern {
        Value::Object(fields) => match_fields(fields, value),
        Value::Array(choices) => choices.iter().any(|choice| match_value(choice, value)),
        single => single == value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pattern_matches_by_equality_of_its_fields() {
        let cases = [
            (json!({}), true),
            (json!({"type": "result"}), true),
            (json!({"type": "result", "is_error": true}), false),
            (json!({"type": "Result"}), false),
            (json!({"part": {"reason": "stop"}}), true),
            (json!({"part": {"reason": ["length", "stop"]}}), true),
            (json!({"part": {"reason": []}}), false),
            (json!({"part": "stop"}), false),
            (json!({"missing": {}}), false),
            (json!({"type": {}}), false),
        ];
        let value =
            json!({"type": "result", "is_error": false, "part": {"reason": "stop", "n": 1}});
        for (pattern, expected) in cases {
            let pattern: JsonPattern = serde_json::from_value(pattern).unwrap();
            assert_eq!(pattern.matches(&value), expected, "{pattern:?}");
        }
        assert!(!JsonPattern::default().matches(&json!([1])));
    }
}
