//! Recordings of model calls, for replay in tests.
//!
//! A recording is a file of JSON lines, for people to read and to store beside their tests. It has
//! a header, then one line for each call that ended. It contains no key, HTTP header or time.
//!
//! ```text
//! Recorder    ─> any Model         calls it and records the call
//! ReplayModel <─ the file          finds the matching call and returns its parts
//! ```
//!
//! A call is found by its agent, the number of replies in the conversation, and the input since the
//! last reply. Addresses and times in the input may differ from the recording; see [`normalize`].

pub mod normalize;
mod recorder;
mod replay;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::conversation::ChatMessage;
use crate::error::ModelError;
use crate::model::{ModelRequest, ReplyPart};

pub use recorder::Recorder;
pub use replay::ReplayModel;

const VERSION: u32 = 2;

/// The first line of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordingHeader {
    brigade_recording: u32,
}

/// Checks the first line of a recording; the error says what to do.
fn check_header(line: &str) -> Result<(), String> {
    match serde_json::from_str::<RecordingHeader>(line) {
        Ok(RecordingHeader { brigade_recording: VERSION }) => Ok(()),
        Ok(RecordingHeader { brigade_recording: other }) => Err(format!(
            "the recording has version {other}, but only {VERSION} can be read; record it again"
        )),
        Err(_) => Err("the file is not a recording; choose another file".to_owned()),
    }
}

/// One call, as one line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedCall {
    agent: String,
    model: String,
    /// The number of replies in the conversation before this call.
    replies: usize,
    /// The messages and results since the last reply.
    input: Vec<RecordedInput>,
    /// All parts, up to the last part or the error.
    parts: Vec<ReplyPart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<ModelError>,
}

/// One message or result in the input of a model. Ids of calls are the provider's and are omitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum RecordedInput {
    User(String),
    Result {
        tool: String,
        text: String,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        failed: bool,
    },
}

impl RecordedInput {
    fn text(&self) -> &str {
        match self {
            Self::User(text) | Self::Result { text, .. } => text,
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::User(_) => "a message".to_owned(),
            Self::Result { tool, failed: false, .. } => format!("the result of {tool}"),
            Self::Result { tool, failed: true, .. } => format!("the failure of {tool}"),
        }
    }
}

/// Returns the inputs before each reply and after the last: one more than there are replies.
fn inputs_by_reply(request: &ModelRequest) -> Vec<Vec<RecordedInput>> {
    let mut all = vec![Vec::new()];
    for message in &request.messages {
        let Some(last) = all.last_mut() else { continue };
        match message {
            ChatMessage::User(user) => last.push(RecordedInput::User(user.text.to_string())),
            ChatMessage::Results(results) => {
                last.extend(results.iter().map(|result| RecordedInput::Result {
                    tool: result.name.to_string(),
                    text: result.text.to_string(),
                    failed: result.failed,
                }))
            }
            ChatMessage::Assistant(_) => all.push(Vec::new()),
        }
    }
    all
}

/// A recording that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("{}:{line}: {problem}", path.display())]
    Line { path: PathBuf, line: usize, problem: String },
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::{StreamExt, stream};

    use super::*;
    use crate::model::{Model, PartStream};
    use crate::testing::{reply, request};

    /// A model that replies to every request with one text.
    #[derive(Debug)]
    struct OneReply;

    impl Model for OneReply {
        fn call(&self, _: Arc<ModelRequest>) -> PartStream {
            let finished = ReplyPart::Finished(Box::new(reply("hi")));
            Box::pin(stream::iter([Ok(finished)]))
        }
    }

    #[tokio::test]
    async fn a_recorded_call_is_stored_with_its_input_and_replayed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calls.jsonl");
        let recorded = Recorder::open(&path).unwrap().wrap(Arc::new(OneReply));
        let parts: Vec<_> = recorded.call(request("Cook")).collect().await;
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], r#"{"brigade_recording":2}"#);
        assert!(lines[1].contains(r#""replies":0,"input":[{"user":"hello"}]"#), "{text}");
        let replayed = ReplayModel::load(&path).unwrap();
        assert_eq!(replayed.call(request("Cook")).collect::<Vec<_>>().await, parts);
    }

    #[test]
    fn a_recording_of_another_version_is_refused() {
        let error = ReplayModel::parse("calls.jsonl", "{\"brigade_recording\":1}\n").unwrap_err();
        let expect = "calls.jsonl:1: the recording has version 1, but only 2 can be read; \
                      record it again";
        assert_eq!(error.to_string(), expect);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calls.jsonl");
        for text in ["{\"brigade_recording\":1}\n", "{\"brigade_recording\":1", "notes\n"] {
            std::fs::write(&path, text).unwrap();
            Recorder::open(&path).unwrap_err();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "nothing is appended");
        }
    }
}
