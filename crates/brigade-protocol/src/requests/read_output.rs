//! `read_output`: reads a page of a process's output.

use brigade_process::output;
use serde::{Deserialize, Serialize};

use super::OutputPageItem;
use crate::call::{Call, NoItems};
use crate::task_target::TaskTarget;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadOutputRequest {
    pub target: TaskTarget,
    #[serde(default)]
    pub streams: StreamSelection,
    #[serde(default)]
    pub from: OutputOffset,
    pub max_bytes: usize,
}

/// The selected streams of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamSelection {
    Stdout,
    Stderr,
    /// Both streams, in the order of their output.
    #[default]
    Combined,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputOffset {
    At(u64),
    /// A number of bytes before the end.
    FromEnd(u64),
}

impl Default for OutputOffset {
    fn default() -> Self {
        Self::At(0)
    }
}

impl From<StreamSelection> for output::OutputView {
    fn from(streams: StreamSelection) -> Self {
        match streams {
            StreamSelection::Stdout => Self::Stdout,
            StreamSelection::Stderr => Self::Stderr,
            StreamSelection::Combined => Self::Combined,
        }
    }
}

impl From<OutputOffset> for output::ReadStart {
    fn from(from: OutputOffset) -> Self {
        match from {
            OutputOffset::At(position) => Self::At(position),
            OutputOffset::FromEnd(bytes) => Self::FromEnd(bytes),
        }
    }
}

impl Call for ReadOutputRequest {
    type Reply = OutputPageItem;
    type Item = NoItems;
}
