//! `move_session`: gives a session to a node, as soon as nothing of the session runs.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

/// Only for the operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MoveSessionRequest {
    pub session: String,
    /// The name of the node.
    pub node: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveSessionReply {
    /// The node that owns the session now. A session at rest may have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

impl Call for MoveSessionRequest {
    type Reply = MoveSessionReply;
    type Item = NoItems;
}
