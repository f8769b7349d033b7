//! `shutdown`: asks the daemon to drain and shut down, or to end its drain. Processes keep running.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::ShutdownRequest;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for ShutdownRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<(), Refusal> {
        context.require_operator("stop the daemon")?;
        context.request_shutdown();
        Ok(())
    }
}
