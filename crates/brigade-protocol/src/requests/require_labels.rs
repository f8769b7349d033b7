//! `require_labels`: sets the labels that a node must have to own a session.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

/// Only for the operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequireLabelsRequest {
    pub session: String,
    /// The labels, in place of earlier ones.
    pub labels: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequireLabelsReply {
    /// The node that owns the session now. A session at rest may have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The node to which the session moves, because its owner has not all the labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_owner: Option<String>,
    /// True if no node that takes sessions has all the labels.
    #[serde(default)]
    pub unsatisfied: bool,
}

impl Call for RequireLabelsRequest {
    type Reply = RequireLabelsReply;
    type Item = NoItems;
}
