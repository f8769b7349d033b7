//! `drain_node`: lets a node claim no more sessions and give up those at rest, or undoes that.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::http::NodeBody;
use brigade_protocol::requests::DrainNodeRequest;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for DrainNodeRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<NodeBody, Refusal> {
        context.require_operator("drain nodes")?;
        context.find_node(&self.node).await?;
        context.runtime().drain_node(&self.node, self.draining).await?;
        context.find_node(&self.node).await
    }
}
