//! `list_sessions`: lists the stored sessions.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ListSessionsRequest {
    /// Includes closed sessions. Only for the operator.
    #[serde(default)]
    pub include_closed: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionInfo {
    pub name: String,
    pub id: String,
    pub state: String,
    /// Milliseconds since the epoch.
    pub opened_at: u64,
    pub alive_tasks: usize,
    /// Ended tasks whose results were not collected.
    pub uncollected_tasks: usize,
    /// The node that owns it. A session at rest has none, and so has every session without a fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The labels that a node must have to own it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_labels: Vec<String>,
}

impl Call for ListSessionsRequest {
    type Reply = Vec<SessionInfo>;
    type Item = NoItems;
}
