//! `list_notifiers`: lists the notifiers of the daemon, with what they have not delivered.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{ListNotifiersReply, ListNotifiersRequest};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for ListNotifiersRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<ListNotifiersReply, Refusal> {
        context.require_operator("see notifiers")?;
        context.daemon.notifications.describe(context.runtime()).await
    }
}
