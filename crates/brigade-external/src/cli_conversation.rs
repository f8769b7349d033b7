//! The conversation with a command-line agent, as its adapter describes it.

use brigade_model::refusal::Refusal;
use serde_json::{Value, json};

use crate::adapter::{CliAdapter, PermissionDecision};
use crate::event_reader::LineContent;
use crate::external_agent::{ConversationStep, ProgramInput, TurnConversation};
use crate::turn_events::TurnEvent;

#[derive(Debug)]
pub(crate) struct CliConversation {
    adapter: CliAdapter,
    /// True if the input of the program has ended.
    has_ended_input: bool,
}

impl CliConversation {
    pub(crate) fn new(adapter: CliAdapter) -> Self {
        let has_ended_input = !adapter.keeps_input_open();
        Self { adapter, has_ended_input }
    }

    pub(crate) fn restore(adapter: CliAdapter, saved: &Value) -> Result<Self, Refusal> {
        let has_ended_input = saved.get("has_ended_input").and_then(Value::as_bool);
        let has_ended_input = has_ended_input
            .ok_or_else(|| Refusal::internal("the saved state of a conversation is unreadable"))?;
        Ok(Self { adapter, has_ended_input })
    }

    /// Answers requests that need no decision, and ends the input of a turn that is closed.
    fn reply(&mut self, events: &[TurnEvent]) -> ProgramInput {
        let mut input = ProgramInput::default();
        if self.has_ended_input {
            return input;
        }
        for event in events {
            match event {
                TurnEvent::OtherRequest { id } => {
                    input.bytes.extend(self.adapter.refuse_request(id).unwrap_or_default());
                }
                TurnEvent::Closed(_) => input.ends = true,
                _ => {}
            }
        }
        self.has_ended_input = input.ends;
        input
    }
}

impl TurnConversation for CliConversation {
    fn read_line(&mut self, line: &LineContent) -> ConversationStep {
        let LineContent::Event(event) = line else { return ConversationStep::default() };
        let events = self.adapter.read_event(event);
        let input = self.reply(&events);
        ConversationStep { events, input }
    }

    fn decide_permission(
        &mut self,
        request_id: &str,
        decision: PermissionDecision<'_>,
    ) -> ProgramInput {
        // A turn that is closed has no open requests.
        if self.has_ended_input {
            return ProgramInput::default();
        }
        let bytes = self.adapter.permission_answer(request_id, decision).unwrap_or_default();
        ProgramInput { bytes, ends: false }
    }

    fn save(&self) -> Value {
        json!({ "has_ended_input": self.has_ended_input })
    }
}
