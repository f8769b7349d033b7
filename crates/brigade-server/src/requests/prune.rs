//! `prune`: removes old ended tasks and old events.

use brigade_model::ids::Millis;
use brigade_model::refusal::Refusal;
use brigade_store::Retention;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;

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

    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<PruneReply, Refusal> {
        context.require_operator("prune")?;
        let retention =
            Retention { ended: Millis(self.ended_age_ms), events: Millis(self.event_age_ms) };
        let pruned = context.runtime().prune(&retention).await?;
        Ok(PruneReply { sessions: pruned.sessions, tasks: pruned.tasks, events: pruned.events })
    }
}
