//! How the daemon is.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Status {}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DaemonStatus {
    pub version: String,
    pub protocol: u32,
    pub pid: u32,
    pub folder: String,
    pub up_ms: u64,
    pub clients: usize,
    pub sessions: usize,
    pub living: usize,
}

impl Ask for Status {
    type Done = DaemonStatus;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<DaemonStatus, Refusal> {
        desk.status().await
    }
}
