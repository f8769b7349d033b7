//! Which turn comes next, by the conversation alone.
//!
//! What was already said is found in the conversation: a reply with calls by the ids that the
//! script gave them, one without ids by its words and calls. So nothing depends on how often or when a call was
//! made, and a conversation whose beginning was summarized away goes on where it was.

use std::sync::Arc;

use super::script::{ScriptItem, ScriptSection, ScriptTurn};
use crate::conversation::{AssistantMessage, ChatMessage, ToolArguments};

/// What of a section is in the conversation.
pub(super) struct TurnProgress {
    is_spoken: Vec<bool>,
    /// Replies in the conversation, whether or not the script knows them.
    pub(super) replies: usize,
}

pub(super) fn find_progress(section: &ScriptSection, messages: &[ChatMessage]) -> TurnProgress {
    let mut said = TurnProgress { is_spoken: vec![false; section.turns.len()], replies: 0 };
    for message in messages {
        let ChatMessage::Assistant(reply) = message else { continue };
        said.replies += 1;
        if let Some(turn) = find_turn_of_reply(section, &said.is_spoken, reply) {
            said.is_spoken[turn] = true;
        }
    }
    said
}

/// The first turn that was not yet said, or repeats, and whose conditions hold.
pub(super) fn find_next_turn<'a>(
    section: &'a ScriptSection,
    said: &TurnProgress,
    messages: &[ChatMessage],
) -> Option<(usize, &'a ScriptTurn)> {
    let heard = since_last_reply(messages);
    let mut turns = section.turns.iter().enumerate();
    turns.find(|(number, turn)| {
        (turn.repeats || !said.is_spoken[*number])
            && turn
                .when
                .iter()
                .all(|text| heard.iter().any(|message| message_contains(message, text)))
    })
}

/// The end of what was heard last, for an error.
pub(super) fn describe_last_message(messages: &[ChatMessage]) -> String {
    let text = match messages.last() {
        Some(ChatMessage::User(user)) => user.text.to_string(),
        Some(ChatMessage::Results(results)) => {
            results.iter().map(|result| &*result.text).collect::<Vec<_>>().join(" | ")
        }
        Some(ChatMessage::Assistant(_)) => return "it has the last word itself".to_owned(),
        None => return "nothing was said".to_owned(),
    };
    let cut: String = text.chars().take(200).collect();
    format!("the last it heard is {cut:?}")
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
    said: &[bool],
    reply: &AssistantMessage,
) -> Option<usize> {
    let id = reply.calls().find_map(|call| turn_of_call_id(&call.id));
    if let Some(turn) = id.filter(|turn| *turn < section.turns.len()) {
        return Some(turn);
    }
    let same = |turn: &usize| matches_reply(&section.turns[*turn], reply);
    let mut fresh = (0..section.turns.len()).filter(|turn| !said[*turn]);
    fresh.find(same).or_else(|| (0..section.turns.len()).find(same))
}

/// Whether a turn has these words and calls. White space at the ends is often lost, and Gemini is
/// not sent the ids of its calls back.
fn matches_reply(turn: &ScriptTurn, reply: &AssistantMessage) -> bool {
    let mut texts = Vec::new();
    let mut calls = reply.calls();
    for said in &turn.items {
        match said {
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

/// What is not JSON comes back as something else.
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
