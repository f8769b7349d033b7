//! `close_session`: closes a session.

use brigade_model::task_tree::SessionState;
use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloseSessionRequest {
    pub session: String,
    #[serde(default)]
    pub reason: Option<String>,
}

/// The state of the session before and after the request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloseSessionReply {
    pub state_before: SessionState,
    /// Closing while its tasks are being stopped.
    pub state_after: SessionState,
}

impl Call for CloseSessionRequest {
    type Reply = CloseSessionReply;
    type Item = NoItems;
}
