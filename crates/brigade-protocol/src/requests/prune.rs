//! `prune`: removes old ended tasks and old events.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PruneRequest {
    /// The minimum age of ended tasks and sessions to remove.
    pub ended_age_ms: u64,
    /// The minimum age of events to remove.
    pub event_age_ms: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PruneReply {
    pub sessions: u64,
    pub tasks: u64,
    pub events: u64,
}

impl Call for PruneRequest {
    type Reply = PruneReply;
    type Item = NoItems;
}
