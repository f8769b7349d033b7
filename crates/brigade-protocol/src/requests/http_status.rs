//! `http_status`: returns the addresses that the daemon listens on.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct HttpStatusRequest {}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpStatusReply {
    /// The URLs of its listeners.
    pub urls: Vec<String>,
    /// The daemon was started by `brigade serve`.
    pub is_server: bool,
}

impl Call for HttpStatusRequest {
    type Reply = HttpStatusReply;
    type Item = NoItems;
}
