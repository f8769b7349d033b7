//! Questions of an agent to its user, which ACP sends as forms.
//!
//! A person answers with text. A form with one field takes the text as its value, a form with
//! several fields takes a JSON object. An answer that does not fit is declined.

use agent_client_protocol_schema::v1::RequestId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::messages::render_result;
use super::permissions::request_key;

/// The maximum number of fields of a form.
const FIELDS_MAX: usize = 32;
/// The maximum length of a question in bytes.
const TEXT_MAX: usize = 16 * 1024;

/// A question that waits for its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct OpenQuestion {
    request: RequestId,
    fields: Vec<FormField>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FormField {
    name: String,
    kind: FieldKind,
    /// The allowed values. Empty means any.
    choices: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FieldKind {
    Text,
    Integer,
    Number,
    Boolean,
    TextList,
}

/// A question with the text that a person reads.
#[derive(Debug)]
pub(super) struct ReadQuestion {
    pub(super) open: OpenQuestion,
    pub(super) text: String,
}

impl OpenQuestion {
    /// Reads a form. Returns `None` if a person cannot answer it with text.
    pub(super) fn read(request: RequestId, params: &Value) -> Option<ReadQuestion> {
        if params.get("mode")?.as_str()? != "form" {
            return None;
        }
        let message = params.get("message")?.as_str()?;
        let properties = params.get("requestedSchema")?.get("properties")?.as_object()?;
        if properties.is_empty() || properties.len() > FIELDS_MAX {
            return None;
        }
        let fields: Option<Vec<_>> =
            properties.iter().map(|(name, schema)| FormField::read(name, schema)).collect();
        let open = Self { request, fields: fields?.to_vec() };
        let text = open.render(message);
        (text.len() <= TEXT_MAX).then_some(ReadQuestion { open, text })
    }

    /// Returns the id by which the question is known outside of the conversation.
    pub(super) fn key(&self) -> String {
        request_key(&self.request)
    }

    fn render(&self, message: &str) -> String {
        if let [field] = self.fields.as_slice() {
            return match field.choices.is_empty() {
                true => message.to_owned(),
                false => format!("{message}\nOne of: {}", field.choices.join(", ")),
            };
        }
        let fields: Vec<String> = self.fields.iter().map(FormField::describe).collect();
        format!("{message}\nAnswer with a JSON object:\n{}", fields.join("\n"))
    }

    /// Returns the line of the answer. Without a text, or with one that does not fit, the question is
    /// declined.
    pub(super) fn render_answer(&self, answer: Option<&str>) -> Vec<u8> {
        let content = answer.and_then(|answer| self.read_answer(answer));
        let response = match content {
            Some(content) => json!({ "action": "accept", "content": content }),
            None => json!({ "action": "decline" }),
        };
        render_result(&self.request, response)
    }

    fn read_answer(&self, answer: &str) -> Option<Map<String, Value>> {
        if let [field] = self.fields.as_slice() {
            let value = field.read_text(answer.trim())?;
            return Some(Map::from_iter([(field.name.clone(), value)]));
        }
        let Ok(Value::Object(given)) = serde_json::from_str(answer) else { return None };
        let fields = self.fields.iter();
        let known = fields.filter_map(|field| Some((field, given.get(&field.name)?)));
        known
            .map(|(field, value)| field.accepts(value).then(|| (field.name.clone(), value.clone())))
            .collect()
    }
}

impl FormField {
    fn read(name: &str, schema: &Value) -> Option<Self> {
        let kind = match schema.get("type")?.as_str()? {
            "string" => FieldKind::Text,
            "integer" => FieldKind::Integer,
            "number" => FieldKind::Number,
            "boolean" => FieldKind::Boolean,
            "array" => FieldKind::TextList,
            _ => return None,
        };
        let of = if kind == FieldKind::TextList { schema.get("items")? } else { schema };
        let plain = of.get("enum").and_then(Value::as_array).into_iter().flatten();
        let titled = ["oneOf", "anyOf"].into_iter().filter_map(|name| of.get(name)?.as_array());
        let titled = titled.flatten().filter_map(|choice| choice.get("const"));
        let choices = plain.chain(titled).filter_map(Value::as_str).map(str::to_owned);
        Some(Self { name: name.to_owned(), kind, choices: choices.collect() })
    }

    fn describe(&self) -> String {
        let kind = match self.kind {
            FieldKind::Text => "a text",
            FieldKind::Integer => "a whole number",
            FieldKind::Number => "a number",
            FieldKind::Boolean => "true or false",
            FieldKind::TextList => "a list of texts",
        };
        match self.choices.is_empty() {
            true => format!("- {}: {kind}", self.name),
            false => format!("- {}: {kind}, of: {}", self.name, self.choices.join(", ")),
        }
    }

    fn read_text(&self, text: &str) -> Option<Value> {
        let value = match self.kind {
            FieldKind::Text => json!(text),
            FieldKind::Integer => json!(text.parse::<i64>().ok()?),
            FieldKind::Number => json!(text.parse::<f64>().ok()?),
            FieldKind::Boolean => match text.to_lowercase().as_str() {
                "true" | "yes" => json!(true),
                "false" | "no" => json!(false),
                _ => return None,
            },
            FieldKind::TextList => {
                json!(text.split(',').map(str::trim).collect::<Vec<_>>())
            }
        };
        self.accepts(&value).then_some(value)
    }

    fn accepts(&self, value: &Value) -> bool {
        let is_choice =
            |text: &str| self.choices.is_empty() || self.choices.iter().any(|c| c == text);
        match self.kind {
            FieldKind::Text => value.as_str().is_some_and(is_choice),
            FieldKind::Integer => value.is_i64(),
            FieldKind::Number => value.is_number(),
            FieldKind::Boolean => value.is_boolean(),
            FieldKind::TextList => value
                .as_array()
                .is_some_and(|items| items.iter().all(|item| item.as_str().is_some_and(is_choice))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(properties: Value) -> ReadQuestion {
        let schema = json!({ "type": "object", "properties": properties });
        let params = json!({ "mode": "form", "message": "Which?", "requestedSchema": schema });
        OpenQuestion::read(RequestId::Number(7), &params).unwrap()
    }

    fn answer(question: &ReadQuestion, text: &str) -> Value {
        let line = question.open.render_answer(Some(text));
        serde_json::from_slice::<Value>(&line).unwrap()["result"].clone()
    }

    #[test]
    fn a_form_with_one_field_takes_the_text() {
        let decline = json!({ "action": "decline" });
        let accept = |value: Value| json!({ "action": "accept", "content": { "it": value } });
        let cases = [
            (json!({ "type": "string" }), "blue plates", accept(json!("blue plates"))),
            (json!({ "type": "string", "enum": ["a", "b"] }), "b", accept(json!("b"))),
            (json!({ "type": "string", "enum": ["a", "b"] }), "c", decline.clone()),
            (json!({ "type": "string", "oneOf": [{ "const": "a" }] }), "x", decline.clone()),
            (json!({ "type": "integer" }), " 12 ", accept(json!(12))),
            (json!({ "type": "integer" }), "many", decline.clone()),
            (json!({ "type": "number" }), "1.5", accept(json!(1.5))),
            (json!({ "type": "boolean" }), "Yes", accept(json!(true))),
            (json!({ "type": "boolean" }), "perhaps", decline),
            (json!({ "type": "array", "items": {} }), "a, b", accept(json!(["a", "b"]))),
        ];
        for (schema, text, expected) in cases {
            let question = question(json!({ "it": schema }));
            assert_eq!(answer(&question, text), expected, "{text}");
        }
    }

    #[test]
    fn a_form_with_several_fields_takes_a_json_object() {
        let question = question(json!({ "n": { "type": "integer" }, "why": { "type": "string" } }));
        assert!(question.text.contains("- n: a whole number"), "{}", question.text);
        let accepted = json!({ "action": "accept", "content": { "n": 2, "why": "so" } });
        assert_eq!(answer(&question, r#"{"n": 2, "why": "so", "other": 1}"#), accepted);
        for text in ["two", r#"{"n": "2"}"#] {
            assert_eq!(answer(&question, text), json!({ "action": "decline" }), "{text}");
        }
    }

    #[test]
    fn forms_that_nobody_can_answer_are_not_read() {
        let long = "x".repeat(TEXT_MAX + 1);
        let cases = [
            json!({ "mode": "url", "message": "m", "url": "http://x", "elicitationId": "1" }),
            json!({ "mode": "form", "message": "m" }),
            json!({ "mode": "form", "message": "m", "requestedSchema": { "properties": {} } }),
            json!({ "mode": "form", "message": "m",
                "requestedSchema": { "properties": { "a": { "type": "object" } } } }),
            json!({ "mode": "form", "message": long,
                "requestedSchema": { "properties": { "a": { "type": "string" } } } }),
        ];
        for params in cases {
            assert!(OpenQuestion::read(RequestId::Number(1), &params).is_none(), "{params}");
        }
    }
}
