//! `listen_http`: makes the daemon listen for HTTP on the loopback interface.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

/// Asks for the listener of the dashboard. Only for the operator.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ListenHttpRequest {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenHttpReply {
    /// The URL of the dashboard, without a slash at its end.
    pub url: String,
    /// The URL of the same dashboard for other machines, if the daemon listens for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
}

impl Call for ListenHttpRequest {
    type Reply = ListenHttpReply;
    type Item = NoItems;
}
