//! An agent for a model: its step, last text, questions and usage.

use brigade_model::truncate::{truncate_line, truncate_with_hint};
use serde_json::{Map, Value, json};

use crate::short_text::render_duration;

const LAST_TEXT_CHARS_MAX: usize = 200;
/// The longest part of a question, note or result that is shown at once.
pub const TEXT_BYTES_MAX: usize = 8 * 1024;

/// The part of a task that only agents have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentTaskSummary {
    pub step: u32,
    /// The current activity in a word or two: thinking, or the tools that run.
    pub activity: String,
    pub last_text: Option<String>,
    /// The time without any activity, for an agent that has stalled.
    pub stalled_ms: Option<u64>,
    pub usage: UsageSummary,
    pub questions: Vec<OpenQuestion>,
    pub approvals: Vec<ApprovalSummary>,
}

/// The tokens and money that an agent and its descendants have used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsageSummary {
    pub tokens: u64,
    /// Millionths of a dollar; 0 if no price is known.
    pub micro_dollars: u64,
    /// The tokens of the agent itself, without its descendants.
    pub own_tokens: u64,
    /// Tokens that were reserved for calls whose usage is unknown.
    pub unknown_tokens: u64,
}

/// A question that waits for an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenQuestion {
    pub number: u32,
    pub text: String,
    /// The tool call that the client must execute, if this is not a question.
    pub client_call: Option<Value>,
}

/// A tool call that waits for an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalSummary {
    pub call: u32,
    pub text: String,
}

impl OpenQuestion {
    pub fn verb(&self) -> &'static str {
        if self.client_call.is_some() { "waits for its client" } else { "asks" }
    }
}

impl AgentTaskSummary {
    /// Renders `step 3, thinking, 1200 tokens, $0.02`, without the parts that are not known.
    pub(crate) fn status(&self, is_alive: bool) -> Option<String> {
        let mut parts = Vec::new();
        if is_alive {
            if self.step > 0 {
                parts.push(format!("step {}", self.step));
            }
            parts.push(self.activity.clone());
        }
        if let Some(millis) = self.stalled_ms {
            parts.push(format!("stalled: nothing happened for {}", render_duration(millis)));
        }
        if self.usage.tokens > 0 {
            parts.push(format!("{} tokens", self.usage.tokens));
        }
        if let Some(dollars) = self.usage.dollars() {
            parts.push(format!("${dollars:.2}"));
        }
        parts.retain(|part| !part.is_empty());
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Renders the most urgent input that the agent needs, or its status, in one line.
    pub(crate) fn status_line(&self, is_alive: bool) -> Option<String> {
        if let Some(approval) = self.approvals.first() {
            let call = truncate_line(&approval.text, LAST_TEXT_CHARS_MAX);
            return Some(format!("waits for an approval: {call}"));
        }
        if let Some(question) = self.questions.first() {
            let text = truncate_line(&question.text, LAST_TEXT_CHARS_MAX);
            return Some(format!("{}: {text}", question.verb()));
        }
        let last_text = self.last_text_line().map(|text| format!(": {text}")).unwrap_or_default();
        self.status(is_alive).map(|status| format!("{status}{last_text}"))
    }

    pub(crate) fn last_text_line(&self) -> Option<String> {
        let text = self.last_text.as_deref()?.trim();
        (!text.is_empty()).then(|| truncate_line(text, LAST_TEXT_CHARS_MAX))
    }

    /// Renders the actions that the agent needs: the user's approval of a call, answers to
    /// questions.
    pub fn guidance(&self, address: &str) -> Vec<String> {
        let approvals = self.approvals.iter().map(|ApprovalSummary { call, text }| {
            let text = truncate_line(text, LAST_TEXT_CHARS_MAX);
            format!(
                "{address} waits for an approval of this call: {text}. Only the user can give it: \
                 `brigade approve {address} {call}`."
            )
        });
        approvals.chain(self.question_guidance(address)).collect()
    }

    /// Renders the questions that the reader must answer.
    pub fn question_guidance(&self, address: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for question in &self.questions {
            let read_on = format!("read_output, task {address:?}");
            let text = truncate_with_hint(&question.text, TEXT_BYTES_MAX, "The question", &read_on);
            lines.push(format!(
                "{address} {} (question {}): {text}",
                question.verb(),
                question.number
            ));
        }
        match self.questions.as_slice() {
            [] => {}
            [_] => lines.push(format!(
                "Answer with send_message, to {address:?}; it waits until you do."
            )),
            _ => lines.push(format!(
                "Answer each with send_message, to {address:?}, with its number as question; it waits \
                 until you do."
            )),
        }
        lines
    }

    pub(crate) fn add_to(&self, fields: &mut Map<String, Value>, is_alive: bool) {
        if is_alive {
            if self.step > 0 {
                fields.insert("step".into(), json!(self.step));
            }
            if !self.activity.is_empty() {
                fields.insert("activity".into(), json!(self.activity));
            }
            if let Some(text) = self.last_text_line() {
                fields.insert("last_text".into(), json!(text));
            }
        }
        if let Some(millis) = self.stalled_ms {
            fields.insert("stalled_for".into(), json!(render_duration(millis)));
        }
        if let Some(usage) = self.usage.fields() {
            fields.insert("usage".into(), usage);
        }
        if !self.approvals.is_empty() {
            let approvals = self.approvals.iter();
            let approvals = approvals.map(|one| json!({ "call": one.call, "text": one.text }));
            fields.insert("approvals".into(), approvals.collect());
        }
        if !self.questions.is_empty() {
            let questions = self.questions.iter().map(OpenQuestion::fields);
            fields.insert("questions".into(), questions.collect());
        }
    }
}

impl OpenQuestion {
    fn fields(&self) -> Value {
        let mut fields = json!({ "question": self.number, "text": self.text });
        if let Some(tool) = &self.client_call {
            fields["client_call"] = tool.clone();
        }
        fields
    }
}

impl UsageSummary {
    fn dollars(self) -> Option<f64> {
        (self.micro_dollars > 0).then(|| self.micro_dollars as f64 / 1e6)
    }

    /// Returns the known figures only: an unknown price is not a price of 0.
    fn fields(self) -> Option<Value> {
        let mut fields = Map::new();
        if self.tokens > 0 {
            fields.insert("tokens".into(), json!(self.tokens));
        }
        if let Some(dollars) = self.dollars() {
            fields.insert("dollars".into(), json!(dollars));
        }
        if self.own_tokens != self.tokens {
            fields.insert("own_tokens".into(), json!(self.own_tokens));
        }
        if self.unknown_tokens > 0 {
            fields.insert("unknown_tokens_max".into(), json!(self.unknown_tokens));
        }
        (!fields.is_empty()).then_some(Value::Object(fields))
    }
}
