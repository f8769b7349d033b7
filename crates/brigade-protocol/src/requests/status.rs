//! `status`: returns the state of the daemon.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct StatusRequest {}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusReply {
    pub version: String,
    pub protocol: u32,
    pub pid: u32,
    pub state_dir: String,
    pub uptime_ms: u64,
    pub clients: usize,
    pub sessions: usize,
    pub alive_tasks: usize,
}

impl Call for StatusRequest {
    type Reply = StatusReply;
    type Item = NoItems;
}
