//! `read_transcript`: reads an agent's transcript as text.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::task_target::TaskTarget;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadTranscriptRequest {
    pub target: TaskTarget,
    /// The position to read from, in bytes of the text.
    #[serde(default)]
    pub from: u64,
    #[serde(default)]
    pub max_bytes: Option<usize>,
}

/// A part of a transcript.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TranscriptPage {
    pub text: String,
    pub next: u64,
    pub total: u64,
}

impl Call for ReadTranscriptRequest {
    /// `None` for a task that is not an agent.
    type Reply = Option<TranscriptPage>;
    type Item = NoItems;
}
