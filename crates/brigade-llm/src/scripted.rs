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

use crate::conversation::{AssistantMessage, Content, Reasoning, ToolCall};
use crate::error::{ErrorKind, ModelError};
use crate::model::{Model, Part, PartStream, Reply, Request};
use crate::retry::{Retry, RetryOptions};

pub use parse::ScriptError;
pub use script::{Fault, Script, Trouble};

use script::{Said, Section, Turn};

mod next;
mod parse;
mod script;

/// Plays a script. Clones share it, and the count of its faults.
#[derive(Clone, Debug)]
pub struct Scripted(Arc<Playing>);

#[derive(Debug)]
struct Playing {
    script: Script,
    /// How often which asker has met the faults of which turn.
    faults: Mutex<HashMap<(Arc<str>, usize), u32>>,
}

impl Scripted {
    pub fn new(script: Script) -> Self {
        Self(Arc::new(Playing { script, faults: Mutex::default() }))
    }

    /// Tries faults again as those of a provider are, with pauses as short as a test wants them. What a fault asks
    /// for (`after 2s`) is waited for all the same.
    pub fn with_retry(self) -> Retry {
        let first_pause = Duration::from_millis(50);
        let longest_pause = Duration::from_secs(1);
        let options = RetryOptions { first_pause, longest_pause, ..RetryOptions::default() };
        Retry::over(Arc::new(self), options)
    }
}

impl Model for Scripted {
    fn call(&self, request: Arc<Request>) -> PartStream {
        let playing = Arc::clone(&self.0);
        let start = Playback::NotBegun { playing, request };
        Box::pin(stream::unfold(start, |mut playback| async move {
            let item = playback.next().await?;
            Some((item, playback))
        }))
    }
}

/// What happens next in one call.
#[derive(Debug)]
enum Step {
    Wait(Duration),
    Give(Part),
    Fail(ModelError),
    Hang,
}

enum Playback {
    NotBegun { playing: Arc<Playing>, request: Arc<Request> },
    Begun(std::vec::IntoIter<Step>),
}

impl Playback {
    async fn next(&mut self) -> Option<Result<Part, ModelError>> {
        loop {
            let step = match self {
                Self::NotBegun { playing, request } => {
                    let steps = playing.steps(request);
                    *self = Self::Begun(steps.into_iter());
                    continue;
                }
                Self::Begun(steps) => steps.next()?,
            };
            match step {
                Step::Wait(time) => tokio::time::sleep(time).await,
                Step::Give(part) => return Some(Ok(part)),
                Step::Fail(error) => return Some(Err(error)),
                Step::Hang => std::future::pending().await,
            }
        }
    }
}

impl Playing {
    fn steps(&self, request: &Request) -> Vec<Step> {
        let script = &self.script;
        let Some(section) = script.section(&request.asker) else {
            return out_of_script(format!(
                "{}: nothing is written for {:?}; add `agent {}` or `agent *`",
                script.file(),
                request.asker,
                request.asker
            ));
        };
        let said = next::said(section, &request.messages);
        let Some((number, turn)) = next::turn(section, &said, &request.messages) else {
            return out_of_script(format!(
                "{}: `agent {}` has no further turn that fits {:?} after {} replies; {}",
                script.file(),
                section.name,
                request.asker,
                said.replies,
                next::last_words(&request.messages)
            ));
        };
        match self.fault(&request.asker, number, turn) {
            Some(trouble) => failing(turn, trouble),
            None => playing(section, turn, Ordinal { turn: number, reply: said.replies }),
        }
    }

    /// The trouble that this call meets, if it meets one.
    fn fault<'a>(&self, asker: &Arc<str>, number: usize, turn: &'a Turn) -> Option<&'a Trouble> {
        if turn.faults.is_empty() {
            return None;
        }
        let mut counts = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let met = counts.entry((Arc::clone(asker), number)).or_default();
        let mut before = 0_u32;
        for fault in &turn.faults {
            before = before.saturating_add(fault.times);
            if *met < before {
                *met += 1;
                return Some(&fault.trouble);
            }
        }
        None
    }
}

fn out_of_script(message: String) -> Vec<Step> {
    vec![Step::Fail(ModelError::new(ErrorKind::Invalid, message))]
}

fn failing(turn: &Turn, trouble: &Trouble) -> Vec<Step> {
    let mut steps = Vec::new();
    match trouble {
        Trouble::Hang => steps.push(Step::Hang),
        Trouble::Error(error) => steps.push(Step::Fail(error.clone())),
        Trouble::Cut { words } => {
            let texts = turn.said.iter().filter_map(|said| match said {
                Said::Text(text) => Some(&**text),
                _ => None,
            });
            let words = texts.flat_map(|text| text.split_inclusive(' ')).take(*words);
            steps.extend(words.map(|word| Step::Give(Part::Text(word.to_owned()))));
            let message = "the connection was lost in the middle of the reply";
            steps.push(Step::Fail(ModelError::new(ErrorKind::Connection, message)));
        }
    }
    steps
}

/// Which turn it is, and the how many-th reply of the conversation.
#[derive(Clone, Copy)]
struct Ordinal {
    turn: usize,
    reply: usize,
}

fn playing(section: &Section, turn: &Turn, ordinal: Ordinal) -> Vec<Step> {
    let pace = turn.pace.or(section.pace);
    let mut steps = Vec::with_capacity(turn.said.len() + 1);
    let mut content = Vec::with_capacity(turn.said.len());
    for said in &turn.said {
        match said {
            Said::Delay(time) => steps.push(Step::Wait(*time)),
            Said::Text(text) => {
                speak(text, pace, Part::Text, &mut steps);
                content.push(Content::Text(Arc::clone(text)));
            }
            Said::Thought(text) => {
                speak(text, pace, Part::Reasoning, &mut steps);
                let opaque = serde_json::Value::Null;
                content.push(Content::Reasoning(Reasoning { text: Arc::clone(text), opaque }));
            }
            Said::Call { name, arguments } => {
                steps.push(Step::Give(Part::Call { name: name.to_string() }));
                content.push(Content::Call(ToolCall {
                    id: next::call_id(ordinal.turn, ordinal.reply, content.len()),
                    name: Arc::clone(name),
                    arguments: arguments.clone(),
                    opaque: serde_json::Value::Null,
                }));
            }
        }
    }
    let message = AssistantMessage { content, ..AssistantMessage::default() };
    let usage = turn.usage.or(section.usage).unwrap_or_default();
    let reply = Reply { message, usage, stop: turn.stop };
    steps.push(Step::Give(Part::Finished(Box::new(reply))));
    steps
}

/// In one part, or word by word where there is a pace.
fn speak(text: &str, pace: Option<Duration>, part: fn(String) -> Part, steps: &mut Vec<Step>) {
    let Some(pace) = pace else {
        steps.push(Step::Give(part(text.to_owned())));
        return;
    };
    for word in text.split_inclusive(' ') {
        steps.push(Step::Wait(pace));
        steps.push(Step::Give(part(word.to_owned())));
    }
}

#[cfg(test)]
mod tests;
