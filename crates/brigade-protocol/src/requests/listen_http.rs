//! `listen_http`: makes the daemon listen for HTTP on the loopback interface.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

/// Asks for the listener of the dashboard. Only for the operator.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ListenHttpRequest {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenHttpReply {
    pub address: SocketAddr,
}

impl Call for ListenHttpRequest {
    type Reply = ListenHttpReply;
    type Item = NoItems;
}
