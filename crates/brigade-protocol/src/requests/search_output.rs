//! `search_output`: finds matching lines in a process's output or an agent's transcript.

use std::fmt;
use std::str::FromStr;

use brigade_model::refusal::Refusal;
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
    /// The place at which an earlier search ended; `None` starts at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SearchPlace>,
}

/// The place at which a search goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchPlace {
    /// The start of the oldest line that was not complete.
    pub read_from: u64,
    /// Lines that end before this position were searched.
    pub searched_to: u64,
}

impl fmt::Display for SearchPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.read_from, self.searched_to)
    }
}

impl FromStr for SearchPlace {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let parse = || {
            let (read_from, searched_to) = text.split_once('-')?;
            let read_from = read_from.parse().ok()?;
            let searched_to = searched_to.parse().ok()?;
            let place = Self { read_from, searched_to };
            (place.to_string() == text).then_some(place)
        };
        parse().ok_or_else(|| Refusal::invalid("this is not a place in an output"))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SearchOutputReply {
    pub lines: Vec<MatchedLineItem>,
    /// More lines may match: there are too many, or the search took too long.
    pub has_more: bool,
    /// The place at which the next search goes on, if there may be more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<SearchPlace>,
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
