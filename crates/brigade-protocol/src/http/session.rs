//! Sessions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ApiTime, LimitsBody, UsageBody};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Session)]
pub struct SessionBody {
    pub id: String,
    /// The name: for a workspace, the path of its directory.
    pub name: String,
    /// Open: `open`, `closing`, `closed`.
    pub state: String,
    pub opened_at: ApiTime,
    pub alive_tasks: usize,
    /// Ended tasks whose result waits for the client that started them, or for a parent that is
    /// alive. Nobody has to take the result of a task that the operator started.
    pub uncollected_tasks: usize,
    pub usage: UsageBody,
    /// The limits of all its tasks together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsBody>,
    /// The node that owns it. Absent for a session at rest, without a fleet, and for a client's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The labels that a node must have to own it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_labels: Vec<String>,
    /// The place in the feed at which this was read.
    pub cursor: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SessionList)]
pub struct SessionListBody {
    pub items: Vec<SessionBody>,
}

/// A session to open: one for a workspace, or one of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = SessionRequest)]
pub enum SessionRequestBody {
    /// The absolute path of a directory. The session is that of its git root.
    Workspace(String),
    Name(String),
}
