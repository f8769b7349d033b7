//! Recordings of what models were asked and said, to be played again in tests.
//!
//! A recording is a file of JSON lines, for people to read and to keep beside their tests: a heading,
//! then a line for each call that came to an end. It has no key, no header and no time in it.
//!
//! ```text
//! Recorder ─> any Model            asks and listens, and writes down
//! Replay   <─ the file             finds the call that is asked, and gives its parts
//! ```
//!
//! A call is found by who asks, how many replies the conversation has, and what came since the last
//! one. Addresses and times in that may be others than in the recording; see [`normal`].

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

const VERSION: u32 = 1;

/// The first line of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordingHeader {
    brigade_recording: u32,
}

/// One call, as a line has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedCall {
    agent: String,
    model: String,
    /// How many replies the conversation had.
    replies: usize,
    /// What came since the last of them.
    input: Vec<RecordedInput>,
    /// All that was said, to the last part or the error.
    parts: Vec<ReplyPart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<ModelError>,
}

/// Something that a model hears. The ids of calls are the provider's, and are left out.
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

/// What was heard before each reply, and since the last: always one more than there are replies.
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
