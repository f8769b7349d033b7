//! Answers from a recording.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream;
use serde_json::Value;

use super::normalize::{AddressMap, normalize};
use super::{
    RecordedCall, RecordedInput, RecordingError, RecordingHeader, VERSION, inputs_by_reply,
};
use crate::conversation::{ContentBlock, ToolArguments};
use crate::error::{ModelError, ModelErrorKind};
use crate::model::{Model, ModelReply, ModelRequest, PartStream, ReplyPart};

/// How much of a text is shown where two differ.
const EXCERPT_CHARS: usize = 60;

/// A model that says again what was recorded, to whoever asks the same.
#[derive(Debug)]
pub struct ReplayModel {
    path: PathBuf,
    calls: Vec<RecordingLine>,
    /// How often each was played: of several that fit, the one that was played least is next.
    play_counts: Mutex<Vec<usize>>,
}

#[derive(Debug)]
struct RecordingLine {
    line: usize,
    recorded: RecordedCall,
}

impl ReplayModel {
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, RecordingError> {
        let path = path.into();
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) => Err(RecordingError::File { path, error }),
        }
    }

    /// A recording that was read already; `path` is for messages.
    pub fn parse(path: impl Into<PathBuf>, text: &str) -> Result<Self, RecordingError> {
        let path = path.into();
        let wrong = |line: usize, problem: String| RecordingError::Line {
            path: path.clone(),
            line,
            problem,
        };
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let heading =
            lines.next().and_then(|(_, line)| serde_json::from_str::<RecordingHeader>(line).ok());
        match heading {
            Some(RecordingHeader { brigade_recording: VERSION }) => {}
            Some(RecordingHeader { brigade_recording: other }) => {
                return Err(wrong(1, format!("it is of version {other}; {VERSION} can be read")));
            }
            None => return Err(wrong(1, "it does not begin as a recording does".to_owned())),
        }
        let mut calls = Vec::new();
        for (line, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
            let recorded = serde_json::from_str(text);
            let recorded = recorded.map_err(|error| wrong(line, error.to_string()))?;
            calls.push(RecordingLine { line, recorded });
        }
        let played = Mutex::new(vec![0; calls.len()]);
        Ok(Self { path, calls, play_counts: played })
    }

    fn find(&self, request: &ModelRequest) -> Result<(&RecordingLine, AddressMap), ModelError> {
        let said = inputs_by_reply(request);
        let (replies, now) = (said.len() - 1, said.last().map_or(&[][..], Vec::as_slice));
        let asker = normalize(&request.agent);
        let fitting = |replies: usize, heard: &[RecordedInput]| {
            self.calls_of(&asker, replies)
                .filter(|(_, call)| first_difference(&call.recorded.input, heard).is_none())
                .collect::<Vec<_>>()
        };
        let fit = fitting(replies, now);
        let mut played = self.play_counts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((at, call)) = fit.into_iter().min_by_key(|(at, _)| played[*at]) else {
            return Err(ModelError::new(
                ModelErrorKind::Invalid,
                self.describe_mismatch(request, &said),
            ));
        };
        played[at] += 1;
        drop(played);
        let mut addresses = AddressMap::default();
        for (replies, heard) in said[..replies].iter().enumerate() {
            if let Some((_, earlier)) = fitting(replies, heard).first() {
                learn_addresses(&mut addresses, &earlier.recorded.input, heard);
            }
        }
        learn_addresses(&mut addresses, &call.recorded.input, now);
        Ok((call, addresses))
    }

    /// The calls of this asker, in a conversation with so many replies.
    fn calls_of(
        &self,
        asker: &str,
        replies: usize,
    ) -> impl Iterator<Item = (usize, &RecordingLine)> {
        let calls = self.calls.iter().enumerate();
        calls.filter(move |(_, call)| {
            call.recorded.replies == replies && normalize(&call.recorded.agent) == asker
        })
    }

    /// What is asked that was not recorded: the first difference to what was.
    fn describe_mismatch(&self, request: &ModelRequest, said: &[Vec<RecordedInput>]) -> String {
        let (file, asker) = (display_path(&self.path), &request.agent);
        let replies = said.len() - 1;
        let now = said.last().map_or(&[][..], Vec::as_slice);
        let normal_asker = normalize(asker);
        let nearest = self.calls_of(&normal_asker, replies).next();
        match nearest {
            Some((_, call)) => {
                let difference = first_difference(&call.recorded.input, now).unwrap_or_default();
                format!(
                    "{file}:{}: {asker:?} asks something else after {replies} replies than was recorded: \
                     {difference}; record it anew if that is right",
                    call.line
                )
            }
            None => {
                let asked = now.last().map_or("nothing", RecordedInput::text);
                format!(
                    "{file}: nothing is recorded of {asker:?} after {replies} replies; it was told {:?}; \
                     record it anew if that is right",
                    excerpt(asked, 0)
                )
            }
        }
    }
}

impl Model for ReplayModel {
    fn call(&self, request: Arc<ModelRequest>) -> PartStream {
        let (call, addresses) = match self.find(&request) {
            Ok(found) => found,
            Err(error) => return Box::pin(stream::iter([Err(error)])),
        };
        let parts = call.recorded.parts.iter().cloned();
        let parts = parts.map(|part| {
            if addresses.is_identity() { part } else { translate_part(part, &addresses) }
        });
        let parts: Vec<_> = parts.map(Ok).chain(call.recorded.error.clone().map(Err)).collect();
        Box::pin(stream::iter(parts))
    }
}

fn display_path(path: &Path) -> String {
    path.display().to_string()
}

fn learn_addresses(addresses: &mut AddressMap, recorded: &[RecordedInput], here: &[RecordedInput]) {
    for (recorded, here) in recorded.iter().zip(here) {
        addresses.learn(recorded.text(), here.text());
    }
}

/// The first difference that is more than one of addresses and times.
fn first_difference(recorded: &[RecordedInput], asked: &[RecordedInput]) -> Option<String> {
    for (recorded, asked) in recorded.iter().zip(asked) {
        if recorded.describe() != asked.describe() {
            return Some(format!(
                "recorded is {}, asked {}",
                recorded.describe(),
                asked.describe()
            ));
        }
        let (then, now) = (normalize(recorded.text()), normalize(asked.text()));
        if then != now {
            let at = then.bytes().zip(now.bytes()).take_while(|(one, other)| one == other).count();
            let (then, now) = (excerpt(&then, at), excerpt(&now, at));
            return Some(format!("{}: recorded is {then:?}, asked {now:?}", recorded.describe()));
        }
    }
    let (then, now) = (recorded.len(), asked.len());
    if then == now {
        return None;
    }
    let more = recorded
        .get(now)
        .or_else(|| asked.get(then))
        .map(RecordedInput::describe)
        .unwrap_or_default();
    Some(if then > now { format!("{more} is missing") } else { format!("{more} was not recorded") })
}

/// The text from a little before this byte on.
fn excerpt(text: &str, at: usize) -> String {
    let from = text.floor_char_boundary(at.saturating_sub(EXCERPT_CHARS / 3));
    let shown: String = text[from..].chars().take(EXCERPT_CHARS).collect();
    let before = if from > 0 { "…" } else { "" };
    let after = if from + shown.len() < text.len() { "…" } else { "" };
    format!("{before}{shown}{after}")
}

fn translate_part(part: ReplyPart, addresses: &AddressMap) -> ReplyPart {
    match part {
        ReplyPart::Text(text) => ReplyPart::Text(addresses.translate(&text)),
        ReplyPart::Finished(reply) => {
            ReplyPart::Finished(Box::new(translate_reply(*reply, addresses)))
        }
        other => other,
    }
}

fn translate_reply(mut reply: ModelReply, addresses: &AddressMap) -> ModelReply {
    for content in &mut reply.message.content {
        match content {
            ContentBlock::Text(text) => *text = addresses.translate(text).into(),
            ContentBlock::Call(call) => {
                if let ToolArguments::Json(arguments) = &mut call.arguments {
                    translate_value(arguments, addresses);
                }
            }
            ContentBlock::Reasoning(_) => {}
        }
    }
    reply
}

fn translate_value(value: &mut Value, addresses: &AddressMap) {
    match value {
        Value::String(text) => *text = addresses.translate(text),
        Value::Array(values) => values.iter_mut().for_each(|one| translate_value(one, addresses)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|one| translate_value(one, addresses))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
