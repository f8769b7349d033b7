//! `move_session`: gives a session to a node, as soon as nothing of the session runs.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{MoveSessionReply, MoveSessionRequest};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for MoveSessionRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<MoveSessionReply, Refusal> {
        context.require_operator("move sessions")?;
        let node = context.find_node(&self.node).await?;
        // A draining node claims nothing, and no other node claims a session that waits for it.
        if node.state == "draining" {
            let text = format!("the node {:?} is draining and claims no sessions", node.name);
            return Err(Refusal::conflict(text));
        }
        let session = context.existing_session(&self.session).await?;
        context.runtime().move_session(session.id(), &self.node).await?;
        let placements = context.session_placements(std::slice::from_ref(&session)).await?;
        Ok(MoveSessionReply { owner: placements.node_of(session.id()) })
    }
}
