//! The reply of a delegation tool, as text and as JSON.
//!
//! Some clients show their model only the text, others only the JSON. Each of them is complete,
//! with the same sentences.

use serde_json::{Map, Value};

/// A headline, a body, and guidance for the next call; and the same as JSON fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DelegationReply {
    headline: String,
    body: String,
    guidance: Vec<String>,
    fields: Map<String, Value>,
}

impl DelegationReply {
    pub fn new(headline: impl Into<String>) -> Self {
        Self { headline: headline.into(), ..Self::default() }
    }

    /// Adds lines to the text. The caller sets the JSON fields with the same information.
    pub fn add_body(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if !self.body.is_empty() {
            self.body.push('\n');
        }
        self.body.push_str(text);
    }

    /// Adds sentences after the body of the text and to the `message` of the JSON.
    pub fn add_guidance(&mut self, sentences: impl IntoIterator<Item = String>) {
        self.guidance.extend(sentences);
    }

    pub fn set_field(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
    }

    pub fn add_fields(&mut self, fields: Map<String, Value>) {
        self.fields.extend(fields);
    }

    /// Renders the short message: headline and guidance.
    pub fn message(&self) -> String {
        let sentences = std::iter::once(&self.headline).chain(&self.guidance);
        sentences.map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// Renders the whole reply as text.
    pub fn text(&self) -> String {
        let mut parts = vec![self.headline.as_str()];
        if !self.body.is_empty() {
            parts.push(&self.body);
        }
        parts.extend(self.guidance.iter().map(String::as_str));
        parts.join("\n")
    }

    /// Returns the whole reply as JSON, the message first.
    pub fn structured_content(&self) -> Value {
        let mut fields = Map::with_capacity(self.fields.len() + 1);
        fields.insert("message".into(), self.message().into());
        fields.extend(self.fields.iter().map(|(name, value)| (name.clone(), value.clone())));
        Value::Object(fields)
    }
}
