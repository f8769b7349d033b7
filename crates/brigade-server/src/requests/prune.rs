//! Removes what is over and old enough.

use brigade_model::ids::Millis;
use brigade_model::refusal::Refusal;
use brigade_store::Retention;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prune {
    /// Tasks and sessions that ended longer ago than this.
    pub ended_ms: u64,
    /// Events older than this.
    pub events_ms: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Removed {
    pub sessions: u64,
    pub tasks: u64,
    pub events: u64,
}

impl Ask for Prune {
    type Done = Removed;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<Removed, Refusal> {
        desk.operator_only("prune")?;
        let retention = Retention { ended: Millis(self.ended_ms), events: Millis(self.events_ms) };
        let pruned = desk.runtime().prune(&retention).await?;
        Ok(Removed { sessions: pruned.trees, tasks: pruned.tasks, events: pruned.events })
    }
}
