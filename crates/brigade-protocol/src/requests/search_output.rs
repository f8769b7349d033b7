//! `search_output`: finds matching lines in a process's output or an agent's transcript.

use serde::{Deserialize, Serialize};

use super::read_output::StreamSelection;
use crate::call::{Call, NoItems};
use crate::task_target::TaskTarget;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SearchOutputRequest {
    pub target: TaskTarget,
    #[serde(default)]
    pub streams: StreamSelection,
    /// A regular expression.
    pub pattern: String,
    #[serde(default)]
    pub ignore_case: bool,
    pub max_matches: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SearchOutputReply {
    pub lines: Vec<MatchedLineItem>,
    /// More lines may match.
    pub has_more: bool,
    /// Bytes that were not searched because they are no longer stored.
    pub dropped_bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MatchedLineItem {
    pub position: u64,
    pub stderr: bool,
    pub text: String,
}

impl Call for SearchOutputRequest {
    type Reply = SearchOutputReply;
    type Item = NoItems;
}
