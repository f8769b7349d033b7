//! Answers from a recording.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream;
use serde_json::Value;

use super::normal::{Addresses, normal};
use super::{Heading, Heard, Recorded, RecordingError, VERSION, heard};
use crate::conversation::{Arguments, Content};
use crate::error::{ErrorKind, ModelError};
use crate::model::{Model, Part, PartStream, Reply, Request};

/// How much of a text is shown where two differ.
const SHOWN: usize = 60;

/// A model that says again what was recorded, to whoever asks the same.
#[derive(Debug)]
pub struct Replay {
    path: PathBuf,
    calls: Vec<Call>,
    /// How often each was played: of several that fit, the one that was played least is next.
    played: Mutex<Vec<usize>>,
}

#[derive(Debug)]
struct Call {
    line: usize,
    recorded: Recorded,
}

impl Replay {
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
        let heading = lines.next().and_then(|(_, line)| serde_json::from_str::<Heading>(line).ok());
        match heading {
            Some(Heading { brigade_recording: VERSION }) => {}
            Some(Heading { brigade_recording: other }) => {
                return Err(wrong(1, format!("it is of version {other}; {VERSION} can be read")));
            }
            None => return Err(wrong(1, "it does not begin as a recording does".to_owned())),
        }
        let mut calls = Vec::new();
        for (line, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
            let recorded = serde_json::from_str(text);
            let recorded = recorded.map_err(|error| wrong(line, error.to_string()))?;
            calls.push(Call { line, recorded });
        }
        let played = Mutex::new(vec![0; calls.len()]);
        Ok(Self { path, calls, played })
    }

    fn find(&self, request: &Request) -> Result<(&Call, Addresses), ModelError> {
        let said = heard(request);
        let (replies, now) = (said.len() - 1, said.last().map_or(&[][..], Vec::as_slice));
        let asker = normal(&request.asker);
        let fitting = |replies: usize, heard: &[Heard]| {
            self.of(&asker, replies)
                .filter(|(_, call)| difference(&call.recorded.heard, heard).is_none())
                .collect::<Vec<_>>()
        };
        let fit = fitting(replies, now);
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((at, call)) = fit.into_iter().min_by_key(|(at, _)| played[*at]) else {
            return Err(ModelError::new(ErrorKind::Invalid, self.problem(request, &said)));
        };
        played[at] += 1;
        drop(played);
        let mut addresses = Addresses::default();
        for (replies, heard) in said[..replies].iter().enumerate() {
            if let Some((_, earlier)) = fitting(replies, heard).first() {
                learn(&mut addresses, &earlier.recorded.heard, heard);
            }
        }
        learn(&mut addresses, &call.recorded.heard, now);
        Ok((call, addresses))
    }

    /// The calls of this asker, in a conversation with so many replies.
    fn of(&self, asker: &str, replies: usize) -> impl Iterator<Item = (usize, &Call)> {
        let calls = self.calls.iter().enumerate();
        calls.filter(move |(_, call)| {
            call.recorded.replies == replies && normal(&call.recorded.agent) == asker
        })
    }

    /// What is asked that was not recorded: the first difference to what was.
    fn problem(&self, request: &Request, said: &[Vec<Heard>]) -> String {
        let (file, asker) = (name(&self.path), &request.asker);
        let replies = said.len() - 1;
        let now = said.last().map_or(&[][..], Vec::as_slice);
        let normal_asker = normal(asker);
        let nearest = self.of(&normal_asker, replies).next();
        match nearest {
            Some((_, call)) => {
                let difference = difference(&call.recorded.heard, now).unwrap_or_default();
                format!(
                    "{file}:{}: {asker:?} asks something else after {replies} replies than was recorded: \
                     {difference}; record it anew if that is right",
                    call.line
                )
            }
            None => {
                let asked = now.last().map_or("nothing", Heard::text);
                format!(
                    "{file}: nothing is recorded of {asker:?} after {replies} replies; it was told {:?}; \
                     record it anew if that is right",
                    clip(asked, 0)
                )
            }
        }
    }
}

impl Model for Replay {
    fn call(&self, request: Arc<Request>) -> PartStream {
        let (call, addresses) = match self.find(&request) {
            Ok(found) => found,
            Err(error) => return Box::pin(stream::iter([Err(error)])),
        };
        let parts = call.recorded.parts.iter().cloned();
        let parts = parts
            .map(|part| if addresses.are_the_same() { part } else { translated(part, &addresses) });
        let parts: Vec<_> = parts.map(Ok).chain(call.recorded.error.clone().map(Err)).collect();
        Box::pin(stream::iter(parts))
    }
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn learn(addresses: &mut Addresses, recorded: &[Heard], here: &[Heard]) {
    for (recorded, here) in recorded.iter().zip(here) {
        addresses.learn(recorded.text(), here.text());
    }
}

/// The first difference that is more than one of addresses and times.
fn difference(recorded: &[Heard], asked: &[Heard]) -> Option<String> {
    for (recorded, asked) in recorded.iter().zip(asked) {
        if recorded.what() != asked.what() {
            return Some(format!("recorded is {}, asked {}", recorded.what(), asked.what()));
        }
        let (then, now) = (normal(recorded.text()), normal(asked.text()));
        if then != now {
            let at = then.bytes().zip(now.bytes()).take_while(|(one, other)| one == other).count();
            let (then, now) = (clip(&then, at), clip(&now, at));
            return Some(format!("{}: recorded is {then:?}, asked {now:?}", recorded.what()));
        }
    }
    let (then, now) = (recorded.len(), asked.len());
    if then == now {
        return None;
    }
    let more = recorded.get(now).or_else(|| asked.get(then)).map(Heard::what).unwrap_or_default();
    Some(if then > now { format!("{more} is missing") } else { format!("{more} was not recorded") })
}

/// The text from a little before this byte on.
fn clip(text: &str, at: usize) -> String {
    let from = text.floor_char_boundary(at.saturating_sub(SHOWN / 3));
    let shown: String = text[from..].chars().take(SHOWN).collect();
    let before = if from > 0 { "…" } else { "" };
    let after = if from + shown.len() < text.len() { "…" } else { "" };
    format!("{before}{shown}{after}")
}

fn translated(part: Part, addresses: &Addresses) -> Part {
    match part {
        Part::Text(text) => Part::Text(addresses.translate(&text)),
        Part::Finished(reply) => Part::Finished(Box::new(translated_reply(*reply, addresses))),
        other => other,
    }
}

fn translated_reply(mut reply: Reply, addresses: &Addresses) -> Reply {
    for content in &mut reply.message.content {
        match content {
            Content::Text(text) => *text = addresses.translate(text).into(),
            Content::Call(call) => {
                if let Arguments::Json(arguments) = &mut call.arguments {
                    translate_value(arguments, addresses);
                }
            }
            Content::Reasoning(_) => {}
        }
    }
    reply
}

fn translate_value(value: &mut Value, addresses: &Addresses) {
    match value {
        Value::String(text) => *text = addresses.translate(text),
        Value::Array(values) => values.iter_mut().for_each(|one| translate_value(one, addresses)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|one| translate_value(one, addresses))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
