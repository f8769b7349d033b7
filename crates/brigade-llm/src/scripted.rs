//! A model that plays a script: no provider, no key, the same every time.
//!
//! A [`Script`] is a readable file (`docs/scripted-model.md`) with the turns of each agent. The
//! conversation in the request alone determines the next turn. An agent that resumes after a crash
//! therefore gets the turn that it did not record again. Only the counts of played faults are in
//! memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream;

use crate::conversation::{AssistantMessage, ContentBlock, ReasoningBlock, ToolCall};
use crate::error::{ModelError, ModelErrorKind};
use crate::model::{Model, ModelReply, ModelRequest, PartStream, ReplyPart};
use crate::retry::{RetryModel, RetryOptions};

pub use parse::ScriptError;
pub use script::{FaultKind, Script, ScriptFault};

use next_turn::NumberedTurn;
use script::{ScriptItem, ScriptSection, ScriptTurn};

mod next_turn;
mod parse;
mod script;

/// A model that plays a script. Clones share the script and the fault counts.
#[derive(Clone, Debug)]
pub struct ScriptedModel(Arc<ScriptPlayer>);

#[derive(Debug)]
struct ScriptPlayer {
    script: Script,
    /// The number of faults played, by agent and turn.
    fault_counts: Mutex<HashMap<(Arc<str>, usize), u32>>,
}

impl ScriptedModel {
    pub fn new(script: Script) -> Self {
        Self(Arc::new(ScriptPlayer { script, fault_counts: Mutex::default() }))
    }

    /// Wraps the model in retries, with short pauses for tests. It still waits for the time that a
    /// fault requests (`after 2s`).
    pub fn with_retry(self) -> RetryModel {
        let first_pause = Duration::from_millis(50);
        let longest_pause = Duration::from_secs(1);
        let options = RetryOptions {
            min_pause: first_pause,
            max_pause: longest_pause,
            ..RetryOptions::default()
        };
        RetryModel::wrap(Arc::new(self), options)
    }
}

impl Model for ScriptedModel {
    fn call(&self, request: Arc<ModelRequest>) -> PartStream {
        let player = Arc::clone(&self.0);
        let start = ScriptPlayback::Pending { player, request };
        Box::pin(stream::unfold(start, |mut playback| async move {
            let item = playback.next().await?;
            Some((item, playback))
        }))
    }
}

/// The next step of one call.
#[derive(Debug)]
enum PlaybackStep {
    Wait(Duration),
    Give(ReplyPart),
    Fail(ModelError),
    Hang,
}

enum ScriptPlayback {
    Pending { player: Arc<ScriptPlayer>, request: Arc<ModelRequest> },
    Playing(std::vec::IntoIter<PlaybackStep>),
}

impl ScriptPlayback {
    async fn next(&mut self) -> Option<Result<ReplyPart, ModelError>> {
        loop {
            let step = match self {
                Self::Pending { player, request } => {
                    let steps = player.steps(request);
                    *self = Self::Playing(steps.into_iter());
                    continue;
                }
                Self::Playing(steps) => steps.next()?,
            };
            match step {
                PlaybackStep::Wait(time) => tokio::time::sleep(time).await,
                PlaybackStep::Give(part) => return Some(Ok(part)),
                PlaybackStep::Fail(error) => return Some(Err(error)),
                PlaybackStep::Hang => std::future::pending().await,
            }
        }
    }
}

impl ScriptPlayer {
    fn steps(&self, request: &ModelRequest) -> Vec<PlaybackStep> {
        let script = &self.script;
        let Some(section) = script.find_section(&request.agent) else {
            return script_error_steps(format!(
                "{}: the script has no section for {:?}; add `agent {}` or `agent *`",
                script.file(),
                request.agent,
                request.agent
            ));
        };
        let progress = next_turn::find_progress(section, &request.messages);
        let Some(next) = next_turn::find_next_turn(section, &progress, &request.messages) else {
            return script_error_steps(format!(
                "{}: `agent {}` has no further turn that matches the conversation of {:?} after {} replies; {}",
                script.file(),
                section.name,
                request.agent,
                progress.replies,
                next_turn::describe_last_message(&request.messages)
            ));
        };
        match self.next_fault(&request.agent, next) {
            Some(fault) => fault_steps(next.turn, fault),
            None => {
                let ordinal = ReplyOrdinal { turn: next.number, reply: progress.replies };
                reply_steps(section, next.turn, ordinal)
            }
        }
    }

    /// Returns the fault of this call, if one remains.
    fn next_fault<'a>(&self, agent: &Arc<str>, next: NumberedTurn<'a>) -> Option<&'a FaultKind> {
        let turn = next.turn;
        if turn.faults.is_empty() {
            return None;
        }
        let mut counts = self.fault_counts.lock().unwrap_or_else(PoisonError::into_inner);
        let played = counts.entry((Arc::clone(agent), next.number)).or_default();
        let mut before = 0_u32;
        for fault in &turn.faults {
            before = before.saturating_add(fault.times);
            if *played < before {
                *played += 1;
                return Some(&fault.kind);
            }
        }
        None
    }
}

fn script_error_steps(message: String) -> Vec<PlaybackStep> {
    vec![PlaybackStep::Fail(ModelError::new(ModelErrorKind::Invalid, message))]
}

fn fault_steps(turn: &ScriptTurn, fault: &FaultKind) -> Vec<PlaybackStep> {
    let mut steps = Vec::new();
    match fault {
        FaultKind::Hang => steps.push(PlaybackStep::Hang),
        FaultKind::Error(error) => steps.push(PlaybackStep::Fail(error.clone())),
        FaultKind::Cut { word_count } => {
            let texts = turn.items.iter().filter_map(|item| match item {
                ScriptItem::Text(text) => Some(&**text),
                _ => None,
            });
            let words = texts.flat_map(|text| text.split_inclusive(' ')).take(*word_count);
            steps.extend(words.map(|word| PlaybackStep::Give(ReplyPart::Text(word.to_owned()))));
            let message = "the connection was lost in the middle of the reply";
            steps.push(PlaybackStep::Fail(ModelError::new(ModelErrorKind::Connection, message)));
        }
    }
    steps
}

/// The number of the turn in its section, and of the reply in the conversation.
#[derive(Clone, Copy)]
struct ReplyOrdinal {
    turn: usize,
    reply: usize,
}

fn reply_steps(
    section: &ScriptSection,
    turn: &ScriptTurn,
    ordinal: ReplyOrdinal,
) -> Vec<PlaybackStep> {
    let pace = turn.pace.or(section.pace);
    let mut steps = Vec::with_capacity(turn.items.len() + 1);
    let mut content = Vec::with_capacity(turn.items.len());
    for item in &turn.items {
        match item {
            ScriptItem::Delay(time) => steps.push(PlaybackStep::Wait(*time)),
            ScriptItem::Text(text) => {
                push_text_steps(text, pace, ReplyPart::Text, &mut steps);
                content.push(ContentBlock::Text(Arc::clone(text)));
            }
            ScriptItem::Thought(text) => {
                push_text_steps(text, pace, ReplyPart::Reasoning, &mut steps);
                let opaque = serde_json::Value::Null;
                content.push(ContentBlock::Reasoning(ReasoningBlock {
                    text: Arc::clone(text),
                    opaque,
                }));
            }
            ScriptItem::Call { name, arguments } => {
                steps.push(PlaybackStep::Give(ReplyPart::Call { name: name.to_string() }));
                content.push(ContentBlock::Call(ToolCall {
                    id: next_turn::call_id(ordinal.turn, ordinal.reply, content.len()),
                    name: Arc::clone(name),
                    arguments: arguments.clone(),
                    opaque: serde_json::Value::Null,
                }));
            }
        }
    }
    let message = AssistantMessage { content, ..AssistantMessage::default() };
    let usage = turn.usage.or(section.usage).unwrap_or_default();
    let reply = ModelReply { message, usage, stop: turn.stop };
    steps.push(PlaybackStep::Give(ReplyPart::Finished(Box::new(reply))));
    steps
}

/// Adds the text in one part, or word by word if there is a pace.
fn push_text_steps(
    text: &str,
    pace: Option<Duration>,
    part: fn(String) -> ReplyPart,
    steps: &mut Vec<PlaybackStep>,
) {
    let Some(pace) = pace else {
        steps.push(PlaybackStep::Give(part(text.to_owned())));
        return;
    };
    for word in text.split_inclusive(' ') {
        steps.push(PlaybackStep::Wait(pace));
        steps.push(PlaybackStep::Give(part(word.to_owned())));
    }
}

#[cfg(test)]
mod tests;
