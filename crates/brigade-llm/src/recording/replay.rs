//! Replays a recording.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use brigade_model::truncate::{MARKER, truncate_chars};
use futures_util::stream;
use serde_json::Value;

use super::normalize::{AddressMap, normalize};
use super::{RecordedCall, RecordedInput, RecordingError, check_header, inputs_by_reply};
use crate::conversation::{ContentBlock, ToolArguments};
use crate::error::{ModelError, ModelErrorKind};
use crate::model::{Model, ModelReply, ModelRequest, PartStream, ReplyPart};

/// The length of the excerpts in a message about a difference.
const EXCERPT_CHARS: usize = 60;

/// A model that returns the recorded parts for a matching request.
#[derive(Debug)]
pub struct ReplayModel {
    path: PathBuf,
    calls: Vec<RecordingLine>,
    /// The number of replays of each call. Among several matching calls, the least played is next.
    play_counts: Mutex<Vec<usize>>,
}

#[derive(Debug)]
struct RecordingLine {
    line: usize,
    recorded: RecordedCall,
}

/// The recorded call that matches a request.
struct ReplayMatch<'a> {
    line: &'a RecordingLine,
    addresses: AddressMap,
}

impl ReplayModel {
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, RecordingError> {
        let path = path.into();
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) => Err(RecordingError::File { path, error }),
        }
    }

    /// Parses the text of a recording. `path` is used in messages.
    pub fn parse(path: impl Into<PathBuf>, text: &str) -> Result<Self, RecordingError> {
        let path = path.into();
        let line_error = |line: usize, problem: String| RecordingError::Line {
            path: path.clone(),
            line,
            problem,
        };
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let header = lines.next().map_or("", |(_, line)| line);
        check_header(header).map_err(|problem| line_error(1, problem))?;
        let mut calls = Vec::new();
        for (line, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
            let recorded = serde_json::from_str(text);
            let recorded = recorded.map_err(|error| line_error(line, error.to_string()))?;
            calls.push(RecordingLine { line, recorded });
        }
        let play_counts = Mutex::new(vec![0; calls.len()]);
        Ok(Self { path, calls, play_counts })
    }

    fn find_match(&self, request: &ModelRequest) -> Result<ReplayMatch<'_>, ModelError> {
        let inputs = inputs_by_reply(request);
        let replies = inputs.len() - 1;
        let current = inputs.last().map_or(&[][..], Vec::as_slice);
        let agent = normalize(&request.agent);
        let matching = |replies: usize, input: &[RecordedInput]| {
            self.calls_of(&agent, replies)
                .filter(|(_, call)| first_difference(&call.recorded.input, input).is_none())
                .collect::<Vec<_>>()
        };
        let matches = matching(replies, current);
        let mut play_counts = self.play_counts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((index, line)) = matches.into_iter().min_by_key(|(index, _)| play_counts[*index])
        else {
            return Err(ModelError::new(
                ModelErrorKind::Invalid,
                self.describe_mismatch(request, &inputs),
            ));
        };
        play_counts[index] += 1;
        drop(play_counts);
        let mut addresses = AddressMap::default();
        for (replies, input) in inputs[..replies].iter().enumerate() {
            if let Some((_, earlier)) = matching(replies, input).first() {
                learn_addresses(&mut addresses, &earlier.recorded.input, input);
            }
        }
        learn_addresses(&mut addresses, &line.recorded.input, current);
        Ok(ReplayMatch { line, addresses })
    }

    /// Returns the calls of this agent in conversations with this number of replies.
    fn calls_of(
        &self,
        agent: &str,
        replies: usize,
    ) -> impl Iterator<Item = (usize, &RecordingLine)> {
        let calls = self.calls.iter().enumerate();
        calls.filter(move |(_, call)| {
            call.recorded.replies == replies && normalize(&call.recorded.agent) == agent
        })
    }

    /// Describes a request that was not recorded, by its first difference to the nearest recorded
    /// call.
    fn describe_mismatch(&self, request: &ModelRequest, inputs: &[Vec<RecordedInput>]) -> String {
        let file = display_path(&self.path);
        let agent = &request.agent;
        let replies = inputs.len() - 1;
        let current = inputs.last().map_or(&[][..], Vec::as_slice);
        let nearest = self.calls_of(&normalize(agent), replies).next();
        match nearest {
            Some((_, call)) => {
                let difference =
                    first_difference(&call.recorded.input, current).unwrap_or_default();
                format!(
                    "{file}:{}: {agent:?} asks something else after {replies} replies than was recorded: \
                     {difference}; record it again if this is intended",
                    call.line
                )
            }
            None => {
                let last_input = current.last().map_or("nothing", RecordedInput::text);
                format!(
                    "{file}: nothing is recorded of {agent:?} after {replies} replies; its last input is {:?}; \
                     record it again if this is intended",
                    excerpt(last_input, 0)
                )
            }
        }
    }
}

impl Model for ReplayModel {
    fn call(&self, request: Arc<ModelRequest>) -> PartStream {
        let ReplayMatch { line, addresses } = match self.find_match(&request) {
            Ok(found) => found,
            Err(error) => return Box::pin(stream::iter([Err(error)])),
        };
        let parts = line.recorded.parts.iter().cloned();
        let parts = parts.map(|part| {
            if addresses.is_identity() { part } else { translate_part(part, &addresses) }
        });
        let parts: Vec<_> = parts.map(Ok).chain(line.recorded.error.clone().map(Err)).collect();
        Box::pin(stream::iter(parts))
    }
}

fn display_path(path: &Path) -> String {
    path.display().to_string()
}

fn learn_addresses(
    addresses: &mut AddressMap,
    recorded: &[RecordedInput],
    current: &[RecordedInput],
) {
    for (recorded, current) in recorded.iter().zip(current) {
        addresses.learn(recorded.text(), current.text());
    }
}

/// Describes the first difference beyond addresses and times.
fn first_difference(recorded: &[RecordedInput], actual: &[RecordedInput]) -> Option<String> {
    for (recorded, actual) in recorded.iter().zip(actual) {
        if recorded.describe() != actual.describe() {
            return Some(format!(
                "{} was recorded, but the input has {}",
                recorded.describe(),
                actual.describe()
            ));
        }
        let then = normalize(recorded.text());
        let now = normalize(actual.text());
        if then != now {
            let at = then.bytes().zip(now.bytes()).take_while(|(one, other)| one == other).count();
            let then = excerpt(&then, at);
            let now = excerpt(&now, at);
            return Some(format!(
                "{}: {then:?} was recorded, but the input has {now:?}",
                recorded.describe()
            ));
        }
    }
    let then = recorded.len();
    let now = actual.len();
    if then == now {
        return None;
    }
    let more = recorded
        .get(now)
        .or_else(|| actual.get(then))
        .map(RecordedInput::describe)
        .unwrap_or_default();
    Some(if then > now { format!("{more} is missing") } else { format!("{more} was not recorded") })
}

/// Returns an excerpt that starts shortly before this byte.
fn excerpt(text: &str, at: usize) -> String {
    let from = text.floor_char_boundary(at.saturating_sub(EXCERPT_CHARS / 3));
    let before = if from > 0 { MARKER } else { "" };
    format!("{before}{}", truncate_chars(&text[from..], EXCERPT_CHARS))
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
