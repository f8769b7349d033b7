//! `http_status`: returns the addresses that the daemon listens on.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{HttpStatusReply, HttpStatusRequest};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for HttpStatusRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<HttpStatusReply, Refusal> {
        context.require_operator("see the listeners")?;
        let daemon = &context.daemon;
        let listeners = daemon.http_listeners.describe().await;
        Ok(HttpStatusReply { listeners, is_server: daemon.is_server })
    }
}
