//! `require_labels`: sets the labels that a node must have to own a session.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{RequireLabelsReply, RequireLabelsRequest};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for RequireLabelsRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<RequireLabelsReply, Refusal> {
        context.require_operator("set the labels of a session")?;
        let session = context.existing_session(&self.session).await?;
        let moved = context.runtime().require_labels(session.id(), &self.labels).await?;
        let nodes = context.runtime().nodes().await?;
        let takes_it = |labels: &[String]| self.labels.iter().all(|label| labels.contains(label));
        let unsatisfied =
            !nodes.iter().any(|it| it.row.open && !it.row.draining && takes_it(&it.row.labels));
        let placements = context.session_placements(std::slice::from_ref(&session)).await?;
        Ok(RequireLabelsReply {
            owner: placements.node_of(session.id()),
            next_owner: moved.map(|node| node.row.name),
            unsatisfied,
        })
    }
}
