//! A reply of a tool. Some clients show their model only the text, some only the JSON: each half says
//! everything, with the same words.

use serde_json::{Map, Value};

/// A headline, a body, and guidance on what to do next; and the same as fields.
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

    /// Adds lines that the fields have too, in their own way.
    pub fn add_body(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if !self.body.is_empty() {
            self.body.push('\n');
        }
        self.body.push_str(text);
    }

    /// Adds sentences that stand after the body in the text, and in the message of the JSON.
    pub fn add_guidance(&mut self, sentences: impl IntoIterator<Item = String>) {
        self.guidance.extend(sentences);
    }

    pub fn set_field(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
    }

    pub fn add_fields(&mut self, fields: Map<String, Value>) {
        self.fields.extend(fields);
    }

    /// The short message: headline and guidance.
    pub fn message(&self) -> String {
        let sentences = std::iter::once(&self.headline).chain(&self.guidance);
        sentences.map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// The whole reply as text.
    pub fn text(&self) -> String {
        let mut parts = vec![self.headline.as_str()];
        if !self.body.is_empty() {
            parts.push(&self.body);
        }
        parts.extend(self.guidance.iter().map(String::as_str));
        parts.join("\n")
    }

    /// The whole reply as JSON, the message first.
    pub fn structured_content(&self) -> Value {
        let mut fields = Map::with_capacity(self.fields.len() + 1);
        fields.insert("message".into(), self.message().into());
        fields.extend(self.fields.iter().map(|(name, value)| (name.clone(), value.clone())));
        Value::Object(fields)
    }
}
