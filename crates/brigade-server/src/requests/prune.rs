//! `prune`: removes old ended tasks and old events.

use brigade_model::ids::Millis;
use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{PruneReply, PruneRequest};
use brigade_store::Retention;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for PruneRequest {
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
