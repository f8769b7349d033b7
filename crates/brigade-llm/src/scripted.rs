//! A model that plays a script: no provider, no key, the same every time.
//!
//! A [`Script`] is a readable file (`docs/scripted-model.md`) with the turns of each agent. Which of
//! them comes next follows from the conversation in the request alone, so that an agent that is
//! resumed after a crash gets the turn again that it did not record. Only how often a fault was
//! played is kept in memory.

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

use script::{ScriptItem, ScriptSection, ScriptTurn};

mod next_turn;
mod parse;
mod script;

/// Plays a script. Clones share it, and the count of its faults.
#[derive(Clone, Debug)]
pub struct ScriptedModel(Arc<ScriptPlayer>);

#[derive(Debug)]
struct ScriptPlayer {
    script: Script,
    /// How often which asker has met the faults of which turn.
    fault_counts: Mutex<HashMap<(Arc<str>, usize), u32>>,
}

impl ScriptedModel {
    pub fn new(script: Script) -> Self {
        Self(Arc::new(ScriptPlayer { script, fault_counts: Mutex::default() }))
    }

    /// Tries faults again as those of a provider are, with pauses as short as a test wants them. What a fault asks
    /// for (`after 2s`) is waited for all the same.
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
        let playing = Arc::clone(&self.0);
        let start = ScriptPlayback::Pending { playing, request };
        Box::pin(stream::unfold(start, |mut playback| async move {
            let item = playback.next().await?;
            Some((item, playback))
        }))
    }
}

/// What happens next in one call.
#[derive(Debug)]
enum PlaybackStep {
    Wait(Duration),
    Give(ReplyPart),
    Fail(ModelError),
    Hang,
}

enum ScriptPlayback {
    Pending { playing: Arc<ScriptPlayer>, request: Arc<ModelRequest> },
    Playing(std::vec::IntoIter<PlaybackStep>),
}

impl ScriptPlayback {
    async fn next(&mut self) -> Option<Result<ReplyPart, ModelError>> {
        loop {
            let step = match self {
                Self::Pending { playing, request } => {
                    let steps = playing.steps(request);
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
                "{}: nothing is written for {:?}; add `agent {}` or `agent *`",
                script.file(),
                request.agent,
                request.agent
            ));
        };
        let said = next_turn::find_progress(section, &request.messages);
        let Some((number, turn)) = next_turn::find_next_turn(section, &said, &request.messages)
        else {
            return script_error_steps(format!(
                "{}: `agent {}` has no further turn that fits {:?} after {} replies; {}",
                script.file(),
                section.name,
                request.agent,
                said.replies,
                next_turn::describe_last_message(&request.messages)
            ));
        };
        match self.next_fault(&request.agent, number, turn) {
            Some(trouble) => fault_steps(turn, trouble),
            None => reply_steps(section, turn, ReplyOrdinal { turn: number, reply: said.replies }),
        }
    }

    /// The trouble that this call meets, if it meets one.
    fn next_fault<'a>(
        &self,
        asker: &Arc<str>,
        number: usize,
        turn: &'a ScriptTurn,
    ) -> Option<&'a FaultKind> {
        if turn.faults.is_empty() {
            return None;
        }
        let mut counts = self.fault_counts.lock().unwrap_or_else(PoisonError::into_inner);
        let met = counts.entry((Arc::clone(asker), number)).or_default();
        let mut before = 0_u32;
        for fault in &turn.faults {
            before = before.saturating_add(fault.times);
            if *met < before {
                *met += 1;
                return Some(&fault.kind);
            }
        }
        None
    }
}

fn script_error_steps(message: String) -> Vec<PlaybackStep> {
    vec![PlaybackStep::Fail(ModelError::new(ModelErrorKind::Invalid, message))]
}

fn fault_steps(turn: &ScriptTurn, trouble: &FaultKind) -> Vec<PlaybackStep> {
    let mut steps = Vec::new();
    match trouble {
        FaultKind::Hang => steps.push(PlaybackStep::Hang),
        FaultKind::Error(error) => steps.push(PlaybackStep::Fail(error.clone())),
        FaultKind::Cut { word_count: words } => {
            let texts = turn.items.iter().filter_map(|said| match said {
                ScriptItem::Text(text) => Some(&**text),
                _ => None,
            });
            let words = texts.flat_map(|text| text.split_inclusive(' ')).take(*words);
            steps.extend(words.map(|word| PlaybackStep::Give(ReplyPart::Text(word.to_owned()))));
            let message = "the connection was lost in the middle of the reply";
            steps.push(PlaybackStep::Fail(ModelError::new(ModelErrorKind::Connection, message)));
        }
    }
    steps
}

/// Which turn it is, and the how many-th reply of the conversation.
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
    for said in &turn.items {
        match said {
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

/// In one part, or word by word where there is a pace.
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
