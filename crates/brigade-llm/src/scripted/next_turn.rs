//! Finds the next turn from the conversation alone.
//!
//! Past turns are recognised in the conversation: a reply with calls by the ids that the script
//! gave them, any other reply by its text and calls. The result does not depend on the time or
//! number of requests. A conversation whose beginning was summarized continues at the same turn.

use std::sync::Arc;

use brigade_model::truncate::truncate_chars;

use super::script::{ScriptItem, ScriptSection, ScriptTurn};
use crate::conversation::{AssistantMessage, ChatMessage, ToolArguments};

/// The turns of a section that are already in the conversation.
pub(super) struct TurnProgress {
    is_spoken: Vec<bool>,
    /// The number of replies in the conversation, whether or not they come from the script.
    pub(super) replies: usize,
}

/// A turn with its index in the section.
#[derive(Clone, Copy)]
pub(super) struct NumberedTurn<'a> {
    pub(super) number: usize,
    pub(super) turn: &'a ScriptTurn,
}

pub(super) fn find_progress(section: &ScriptSection, messages: &[ChatMessage]) -> TurnProgress {
    let mut progress = TurnProgress { is_spoken: vec![false; section.turns.len()], replies: 0 };
    for message in messages {
        let ChatMessage::Assistant(reply) = message else { continue };
        progress.replies += 1;
        if let Some(turn) = find_turn_of_reply(section, &progress.is_spoken, reply) {
            progress.is_spoken[turn] = true;
        }
    }
    progress
}

/// Returns the first turn that is unspoken or repeats, and whose conditions hold.
pub(super) fn find_next_turn<'a>(
    section: &'a ScriptSection,
    progress: &TurnProgress,
    messages: &[ChatMessage],
) -> Option<NumberedTurn<'a>> {
    let input = since_last_reply(messages);
    let mut turns =
        section.turns.iter().enumerate().map(|(number, turn)| NumberedTurn { number, turn });
    turns.find(|NumberedTurn { number, turn }| {
        (turn.repeats || !progress.is_spoken[*number])
            && turn
                .when
                .iter()
                .all(|text| input.iter().any(|message| message_contains(message, text)))
    })
}

/// Describes the last message, for an error.
pub(super) fn describe_last_message(messages: &[ChatMessage]) -> String {
    let text = match messages.last() {
        Some(ChatMessage::User(user)) => user.text.to_string(),
        Some(ChatMessage::Results(results)) => {
            results.iter().map(|result| &*result.text).collect::<Vec<_>>().join(" | ")
        }
        Some(ChatMessage::Assistant(_)) => return "the last message is its own reply".to_owned(),
        None => return "the conversation is empty".to_owned(),
    };
    let excerpt = truncate_chars(&text, 200);
    format!("the last input is {excerpt:?}")
}

const CALL_ID_PREFIX: &str = "script";

pub(super) fn call_id(turn: usize, reply: usize, call: usize) -> Arc<str> {
    format!("{CALL_ID_PREFIX}-{turn}-{reply}-{call}").into()
}

fn turn_of_call_id(id: &str) -> Option<usize> {
    let mut words = id.split('-');
    (words.next()? == CALL_ID_PREFIX).then_some(())?;
    words.next()?.parse().ok()
}

fn find_turn_of_reply(
    section: &ScriptSection,
    is_spoken: &[bool],
    reply: &AssistantMessage,
) -> Option<usize> {
    let id = reply.calls().find_map(|call| turn_of_call_id(&call.id));
    if let Some(turn) = id.filter(|turn| *turn < section.turns.len()) {
        return Some(turn);
    }
    let same = |turn: &usize| matches_reply(&section.turns[*turn], reply);
    let mut fresh = (0..section.turns.len()).filter(|turn| !is_spoken[*turn]);
    fresh.find(same).or_else(|| (0..section.turns.len()).find(same))
}

/// Returns true if a turn has the text and calls of the reply. White space at the ends is often
/// lost. Gemini does not get the ids of its calls back.
fn matches_reply(turn: &ScriptTurn, reply: &AssistantMessage) -> bool {
    let mut texts = Vec::new();
    let mut calls = reply.calls();
    for item in &turn.items {
        match item {
            ScriptItem::Text(text) => texts.push(&**text),
            ScriptItem::Call { name, arguments } => match calls.next() {
                Some(call) if call.name == *name && same_arguments(&call.arguments, arguments) => {}
                _ => return false,
            },
            ScriptItem::Thought(_) | ScriptItem::Delay(_) => (),
        }
    }
    calls.next().is_none() && texts.join("\n").trim() == reply.text().trim()
}

/// Compares arguments. Malformed ones come back in another form, so they always match.
fn same_arguments(one: &ToolArguments, other: &ToolArguments) -> bool {
    match (one, other) {
        (ToolArguments::Json(one), ToolArguments::Json(other)) => one == other,
        _ => true,
    }
}

fn since_last_reply(messages: &[ChatMessage]) -> &[ChatMessage] {
    let last = messages.iter().rposition(|message| matches!(message, ChatMessage::Assistant(_)));
    last.map_or(messages, |last| &messages[last + 1..])
}

fn message_contains(message: &ChatMessage, text: &str) -> bool {
    match message {
        ChatMessage::User(user) => user.text.contains(text),
        ChatMessage::Results(results) => results.iter().any(|result| result.text.contains(text)),
        ChatMessage::Assistant(_) => false,
    }
}
