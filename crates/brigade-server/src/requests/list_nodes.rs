//! `list_nodes`: lists the nodes of the fleet.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::http::NodeListBody;
use brigade_protocol::requests::ListNodesRequest;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for ListNodesRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<NodeListBody, Refusal> {
        context.list_nodes().await
    }
}
