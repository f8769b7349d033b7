//! `http_status`: returns the addresses that the daemon listens on.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct HttpStatusRequest {}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpStatusReply {
    #[serde(default)]
    pub listeners: Vec<HttpListenerInfo>,
    /// The daemon was started by `brigade serve`.
    pub is_server: bool,
}

/// An address that the daemon listens on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpListenerInfo {
    /// The URL of the bound address, without a slash at its end.
    pub url: String,
    /// The URL under which other machines reach it, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// True for the port that `brigade dashboard` opened.
    pub is_for_dashboard: bool,
    /// The definitions that it publishes as A2A agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
}

impl Call for HttpStatusRequest {
    type Reply = HttpStatusReply;
    type Item = NoItems;
}
