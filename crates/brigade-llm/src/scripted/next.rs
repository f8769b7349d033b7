//! Which turn comes next, by the conversation alone.
//!
//! What was already said is found in the conversation: a reply with calls by the ids that the
//! script gave them, one without ids by its words and calls. So nothing depends on how often or when a call was
//! made, and a conversation whose beginning was summarized away goes on where it was.

use std::sync::Arc;

use super::script::{Said, Section, Turn};
use crate::conversation::{Arguments, AssistantMessage, Message};

/// What of a section is in the conversation.
pub(super) struct SaidSoFar {
    turns: Vec<bool>,
    /// Replies in the conversation, whether or not the script knows them.
    pub(super) replies: usize,
}

pub(super) fn said(section: &Section, messages: &[Message]) -> SaidSoFar {
    let mut said = SaidSoFar { turns: vec![false; section.turns.len()], replies: 0 };
    for message in messages {
        let Message::Assistant(reply) = message else { continue };
        said.replies += 1;
        if let Some(turn) = turn_of(section, &said.turns, reply) {
            said.turns[turn] = true;
        }
    }
    said
}

/// The first turn that was not yet said, or repeats, and whose conditions hold.
pub(super) fn turn<'a>(
    section: &'a Section,
    said: &SaidSoFar,
    messages: &[Message],
) -> Option<(usize, &'a Turn)> {
    let heard = since_last_reply(messages);
    let mut turns = section.turns.iter().enumerate();
    turns.find(|(number, turn)| {
        (turn.repeats || !said.turns[*number])
            && turn.when.iter().all(|text| heard.iter().any(|message| contains(message, text)))
    })
}

/// The end of what was heard last, for an error.
pub(super) fn last_words(messages: &[Message]) -> String {
    let text = match messages.last() {
        Some(Message::User(user)) => user.text.to_string(),
        Some(Message::Results(results)) => {
            results.iter().map(|result| &*result.text).collect::<Vec<_>>().join(" | ")
        }
        Some(Message::Assistant(_)) => return "it has the last word itself".to_owned(),
        None => return "nothing was said".to_owned(),
    };
    let cut: String = text.chars().take(200).collect();
    format!("the last it heard is {cut:?}")
}

const ID: &str = "script";

pub(super) fn call_id(turn: usize, reply: usize, call: usize) -> Arc<str> {
    format!("{ID}-{turn}-{reply}-{call}").into()
}

fn turn_of_id(id: &str) -> Option<usize> {
    let mut words = id.split('-');
    (words.next()? == ID).then_some(())?;
    words.next()?.parse().ok()
}

fn turn_of(section: &Section, said: &[bool], reply: &AssistantMessage) -> Option<usize> {
    let id = reply.calls().find_map(|call| turn_of_id(&call.id));
    if let Some(turn) = id.filter(|turn| *turn < section.turns.len()) {
        return Some(turn);
    }
    let same = |turn: &usize| says(&section.turns[*turn], reply);
    let mut fresh = (0..section.turns.len()).filter(|turn| !said[*turn]);
    fresh.find(same).or_else(|| (0..section.turns.len()).find(same))
}

/// Whether a turn has these words and calls. White space at the ends is often lost, and Gemini is
/// not sent the ids of its calls back.
fn says(turn: &Turn, reply: &AssistantMessage) -> bool {
    let mut texts = Vec::new();
    let mut calls = reply.calls();
    for said in &turn.said {
        match said {
            Said::Text(text) => texts.push(&**text),
            Said::Call { name, arguments } => match calls.next() {
                Some(call) if call.name == *name && same(&call.arguments, arguments) => {}
                _ => return false,
            },
            Said::Thought(_) | Said::Delay(_) => (),
        }
    }
    calls.next().is_none() && texts.join("\n").trim() == reply.text().trim()
}

/// What is not JSON comes back as something else.
fn same(one: &Arguments, other: &Arguments) -> bool {
    match (one, other) {
        (Arguments::Json(one), Arguments::Json(other)) => one == other,
        _ => true,
    }
}

fn since_last_reply(messages: &[Message]) -> &[Message] {
    let last = messages.iter().rposition(|message| matches!(message, Message::Assistant(_)));
    last.map_or(messages, |last| &messages[last + 1..])
}

fn contains(message: &Message, text: &str) -> bool {
    match message {
        Message::User(user) => user.text.contains(text),
        Message::Results(results) => results.iter().any(|result| result.text.contains(text)),
        Message::Assistant(_) => false,
    }
}
