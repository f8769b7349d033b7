//! `close_session`: closes a session.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{CloseSessionReply, CloseSessionRequest};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for CloseSessionRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<CloseSessionReply, Refusal> {
        let session = context.existing_session(&self.session).await?;
        let before = session.row().state;
        session.close(self.reason.as_deref()).await?;
        Ok(CloseSessionReply { state_before: before, state_after: session.row().state })
    }
}
