//! The updates of a session, as events of the turn.

use agent_client_protocol_schema::v1::{
    ContentChunk, Notice, NoticeSeverity, Plan, PlanEntryStatus, SessionUpdate, ToolCallUpdate,
};
use serde::{Deserialize, Serialize};

use crate::turn_events::{NoticeLevel, TextPart, TurnEvent, TurnNotice};

use super::messages::ID_MAX;
use super::token_usage::UsageReader;
use super::tool_calls::{CallList, CallUpdate, block_text};

/// The size from which collected reasoning becomes an event, in bytes.
const REASONING_MAX: usize = 16 * 1024;

/// The updates that were read so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct UpdateReader {
    pub(super) calls: CallList,
    /// The chunks of reasoning since the last event. Agents send a few words at a time.
    reasoning: String,
    /// The message of the last text, if there was no tool call since.
    last_message: Option<String>,
    pub(super) usage: UsageReader,
    /// True if the last status of the turn is a failure.
    #[serde(default)]
    pub(super) has_failed: bool,
}

/// The facts about a session that its updates do not contain.
#[derive(Clone, Copy, Debug)]
pub(super) struct UpdateContext<'a> {
    pub(super) directory: &'a str,
    /// True if a text without the id of a message is one of the program.
    pub(super) needs_message_id: bool,
}

impl UpdateReader {
    /// Returns the events of an update, in order.
    pub(super) fn read(
        &mut self,
        update: SessionUpdate,
        context: &UpdateContext<'_>,
    ) -> Vec<TurnEvent> {
        let directory = context.directory;
        if let SessionUpdate::AgentThoughtChunk(chunk) = &update {
            return self.collect_reasoning(chunk);
        }
        let events = match update {
            SessionUpdate::AgentMessageChunk(chunk)
                if context.needs_message_id && chunk.message_id.is_none() =>
            {
                self.read_program_text(&chunk)
            }
            SessionUpdate::AgentMessageChunk(chunk) => self.read_text(&chunk),
            SessionUpdate::ToolCall(call) => {
                let update = ToolCallUpdate::from(call);
                self.read_call(&CallUpdate { update: &update, is_first: true }, directory)
            }
            SessionUpdate::ToolCallUpdate(update) => {
                self.read_call(&CallUpdate { update: &update, is_first: false }, directory)
            }
            SessionUpdate::Plan(plan) => vec![read_plan(&plan)],
            SessionUpdate::UsageUpdate(usage) => {
                self.usage.read_cost(usage.cost.as_ref()).into_iter().collect()
            }
            SessionUpdate::Notice(notice) => vec![read_notice(notice)],
            _ => Vec::new(),
        };
        if events.is_empty() {
            return events;
        }
        let mut all: Vec<TurnEvent> = self.take_reasoning().into_iter().collect();
        all.extend(events);
        all
    }

    /// Returns the reasoning that was collected.
    pub(super) fn take_reasoning(&mut self) -> Option<TurnEvent> {
        let text = std::mem::take(&mut self.reasoning);
        (!text.is_empty()).then_some(TurnEvent::Reasoning { text })
    }

    /// Notes that the text after this point belongs to another message.
    pub(super) fn end_message(&mut self) {
        self.last_message = None;
    }

    fn collect_reasoning(&mut self, chunk: &ContentChunk) -> Vec<TurnEvent> {
        self.reasoning.push_str(&block_text(&chunk.content).unwrap_or_default());
        match self.reasoning.len() > REASONING_MAX {
            true => self.take_reasoning().into_iter().collect(),
            false => Vec::new(),
        }
    }

    fn read_text(&mut self, chunk: &ContentChunk) -> Vec<TurnEvent> {
        let mut events = Vec::new();
        let text = block_text(&chunk.content).unwrap_or_default();
        if !text.is_empty() {
            let message = chunk.message_id.as_ref().map(ToString::to_string);
            let message = message.filter(|id| id.len() <= ID_MAX);
            let is_next =
                matches!((&self.last_message, &message), (Some(last), Some(id)) if last != id);
            let break_before = if is_next { "\n\n" } else { "" };
            self.last_message = message;
            let text = format!("{break_before}{text}");
            events.push(TurnEvent::Text(TextPart { text, is_delta: true }));
        }
        events.extend(self.usage.read_call(chunk.meta.as_ref()));
        events
    }

    /// Reads a warning of the program, or the reason of a failure.
    fn read_program_text(&mut self, chunk: &ContentChunk) -> Vec<TurnEvent> {
        let level = if self.has_failed { NoticeLevel::Error } else { NoticeLevel::Warning };
        let text = block_text(&chunk.content).unwrap_or_default().trim().to_owned();
        match text.is_empty() {
            true => Vec::new(),
            false => vec![TurnEvent::Notice(TurnNotice { level, text })],
        }
    }

    fn read_call(&mut self, change: &CallUpdate<'_>, directory: &str) -> Vec<TurnEvent> {
        let events = self.calls.apply(change, directory);
        if !events.is_empty() {
            self.end_message();
        }
        events
    }
}

/// Returns a plan as a notice with one line for each entry.
fn read_plan(plan: &Plan) -> TurnEvent {
    let mut text = "plan:".to_owned();
    for entry in &plan.entries {
        let mark = match entry.status {
            PlanEntryStatus::Completed => 'x',
            PlanEntryStatus::InProgress => '>',
            _ => ' ',
        };
        text.push_str(&format!("\n[{mark}] {}", entry.content));
    }
    TurnEvent::Notice(TurnNotice { level: NoticeLevel::Info, text })
}

fn read_notice(notice: Notice) -> TurnEvent {
    let level = match notice.severity {
        NoticeSeverity::Error => NoticeLevel::Error,
        NoticeSeverity::Warning => NoticeLevel::Warning,
        _ => NoticeLevel::Info,
    };
    let text = match notice.description {
        Some(description) => format!("{}: {description}", notice.title),
        None => notice.title,
    };
    TurnEvent::Notice(TurnNotice { level, text })
}
