//! `list_programs`: lists the agent programs of other vendors, with their state on this machine.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{ListProgramsReply, ListProgramsRequest};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for ListProgramsRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<ListProgramsReply, Refusal> {
        // The answer tells of the operator's files, and each program runs for it.
        context.require_operator("list agent programs")?;
        match context.daemon.external_programs.get() {
            Some(programs) => Ok(programs.list(&self).await),
            None => Ok(ListProgramsReply::default()),
        }
    }
}
