//! `list_trust`: lists all trusted definitions.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::ListTrustRequest;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for ListTrustRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Self::Reply, Refusal> {
        context.require_operator("see what is trusted")?;
        Ok(context.trust_store()?.list())
    }
}
