//! `write_input`: writes bytes to a process's input.

use brigade_model::command::ClientControl;
use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{Base64Bytes, WriteInputRequest};
use brigade_runtime::processes::InputPiece;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for WriteInputRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<(), Refusal> {
        let found = context.find_task(&self.target).await?;
        if !context.is_owner_of(&found.row) && context.control != ClientControl::Shared {
            let address = found.row.address(found.no);
            return Err(Refusal::forbidden(format!("{address} was started by another client")));
        }
        if self.writer == 0 {
            return Err(Refusal::invalid("the writer of an input must not be 0"));
        }
        let Self { writer, offset, bytes: Base64Bytes(bytes), closes_input, .. } = self;
        let piece = InputPiece { writer, offset, bytes: bytes.into(), closes_input };
        found.session.write_input(found.no, piece).await
    }
}
