//! Turns the text and the tool calls of a turn into entries of a transcript.

use std::sync::Arc;

use brigade_agent::{AgentOutput, CallSlotRange, JournalRecord, fit_to_journal};
use brigade_llm::conversation::{AssistantMessage, ReasoningBlock, ToolArguments};
use brigade_llm::{ContentBlock, ModelReply, StopReason, TokenUsage, ToolCall, ToolResult};
use brigade_model::call::CallCompletion;
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use brigade_model::truncate::truncate_middle;
use serde_json::Value;

use super::turn_journal::{OpenCall, TurnJournal};
use crate::turn_events::TextPart;

/// The bytes of text after which a reply is stored, although it may go on.
const REPLY_MAX: usize = 256 * 1024;
/// The longest arguments of a call and the longest result that are stored, in bytes.
const VALUE_MAX: usize = 64 * 1024;

/// The reply that is being read.
#[derive(Debug)]
pub(super) struct ReplyWriter {
    blocks: Vec<ReplyBlock>,
    size: usize,
    /// The number of the reply in its run.
    step: u32,
}

#[derive(Debug)]
enum ReplyBlock {
    Text(String),
    Reasoning(String),
}

/// A call as an entry of the journal.
#[derive(Debug)]
pub(super) struct AddedCall {
    pub(super) record: JournalRecord,
    pub(super) slots: u32,
}

impl ReplyWriter {
    /// Creates a writer after so many replies of the run.
    pub(super) fn new(steps: u32) -> Self {
        Self { blocks: Vec::new(), size: 0, step: steps }
    }

    pub(super) fn step(&self) -> u32 {
        self.step
    }

    /// Checks that so much text was read that it should be stored.
    pub(super) fn is_large(&self) -> bool {
        self.size > REPLY_MAX
    }

    pub(super) fn add_text(&mut self, part: &TextPart) {
        self.begin_reply();
        self.size += part.text.len();
        match self.blocks.last_mut() {
            Some(ReplyBlock::Text(text)) if part.is_delta => text.push_str(&part.text),
            _ => self.blocks.push(ReplyBlock::Text(part.text.clone())),
        }
    }

    pub(super) fn add_reasoning(&mut self, text: &str) {
        self.begin_reply();
        self.size += text.len();
        match self.blocks.last_mut() {
            Some(ReplyBlock::Reasoning(last)) => last.push_str(text),
            _ => self.blocks.push(ReplyBlock::Reasoning(text.to_owned())),
        }
    }

    fn begin_reply(&mut self) {
        if self.blocks.is_empty() {
            self.step += 1;
        }
    }

    /// Returns the reply so far as an entry, if it has text.
    pub(super) fn flush(
        &mut self,
        journal: &mut TurnJournal,
    ) -> Result<Option<JournalRecord>, Refusal> {
        if self.blocks.is_empty() {
            return Ok(None);
        }
        let content = self.take_content();
        Ok(Some(journal.base.json_record(EntryLabel::ModelReply, encode_reply(content)?)))
    }

    /// Returns the reply so far with a call as an entry.
    pub(super) fn add_call(
        &mut self,
        journal: &mut TurnJournal,
        id: &str,
        name: &str,
        arguments: Value,
    ) -> Result<AddedCall, Refusal> {
        self.begin_reply();
        let mut content = self.take_content();
        let arguments = bound_arguments(arguments);
        let call = ToolCall { id: id.into(), name: name.into(), arguments, opaque: Value::Null };
        content.push(ContentBlock::Call(call));
        let record = journal.base.json_record(EntryLabel::ModelReply, encode_reply(content)?);
        let slots = journal.base.take_indexes(CallSlotRange::SLOTS_PER_CALL).0;
        Ok(AddedCall { record, slots })
    }

    fn take_content(&mut self) -> Vec<ContentBlock> {
        self.size = 0;
        let blocks = std::mem::take(&mut self.blocks).into_iter();
        let content = blocks.map(|block| match block {
            ReplyBlock::Text(text) => ContentBlock::Text(text.into()),
            ReplyBlock::Reasoning(text) => {
                ContentBlock::Reasoning(ReasoningBlock { text: text.into(), opaque: Value::Null })
            }
        });
        content.collect()
    }

    pub(super) fn result(id: &str, call: &OpenCall, text: &str, failed: bool) -> ToolResult {
        let text = truncate_middle(text, VALUE_MAX).into();
        ToolResult { id: id.into(), name: call.name.clone(), text, failed }
    }

    /// Returns the entry of a result, which has the first slot of its call.
    pub(super) fn result_record(slots: u32, result: &ToolResult) -> Result<JournalRecord, Refusal> {
        let completion = Arc::new(CallCompletion::Value(Json::of(result)?));
        Ok(JournalRecord::new(CallIndex(slots), EntryLabel::ToolResult, completion))
    }

    /// Returns the output that observers get of a text.
    pub(super) fn text_output(&self, part: &TextPart) -> Vec<AgentOutput> {
        let joins_text = matches!(self.blocks.last(), Some(ReplyBlock::Text(_)));
        let separator = if joins_text && !part.is_delta { "\n" } else { "" };
        self.with_step(AgentOutput::Text(format!("{separator}{}", part.text).into()))
    }

    /// Returns the output that observers get of reasoning.
    pub(super) fn reasoning_output(&self, text: &str) -> Vec<AgentOutput> {
        self.with_step(AgentOutput::Reasoning(text.into()))
    }

    /// Returns the output that observers get of a call.
    pub(super) fn call_output(&self, id: &str, name: &str, arguments: &Value) -> Vec<AgentOutput> {
        let arguments = arguments.to_string();
        self.with_step(AgentOutput::ToolCall { id: id.into(), name: name.into(), arguments })
    }

    /// Returns the output that observers get of a result.
    pub(super) fn result_output(result: &ToolResult) -> AgentOutput {
        let ToolResult { id, name, text, failed } = result.clone();
        AgentOutput::ToolResult { id, name, text, failed }
    }

    fn with_step(&self, output: AgentOutput) -> Vec<AgentOutput> {
        let begins = self.blocks.is_empty();
        let step = begins.then_some(AgentOutput::Step { step: self.step + 1 });
        step.into_iter().chain([output]).collect()
    }
}

/// Returns the entry of a reply. A text that is too long for an entry is truncated, and says so.
fn encode_reply(content: Vec<ContentBlock>) -> Result<Json, Refusal> {
    let reply = ModelReply {
        message: AssistantMessage { content, opaque: Value::Null },
        usage: TokenUsage::default(),
        stop: StopReason::EndOfTurn,
    };
    let (_, json) = fit_to_journal(reply)?;
    Ok(json)
}

fn bound_arguments(arguments: Value) -> ToolArguments {
    match arguments.to_string().len() {
        length if length > VALUE_MAX => {
            let problem = format!("its arguments have {length} bytes, which are not shown");
            ToolArguments::Malformed { problem: problem.into() }
        }
        _ => ToolArguments::Json(arguments),
    }
}
