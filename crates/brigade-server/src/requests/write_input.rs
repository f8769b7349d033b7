//! `write_input`: writes bytes to a process's input.

use brigade_model::command::ClientControl;
use brigade_model::refusal::Refusal;
use brigade_runtime::processes::InputPiece;
use serde::{Deserialize, Serialize};

use super::Base64Bytes;
use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, TaskTarget};

/// A piece of input. The daemon replies after the bytes are safe from its own crash. A repeated
/// request does not write them again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WriteInputRequest {
    pub target: TaskTarget,
    /// A random number that identifies the writer.
    pub writer: u64,
    /// The number of bytes that this writer has written before.
    pub offset: u64,
    pub bytes: Base64Bytes,
    /// Closes the input after these bytes.
    #[serde(default)]
    pub closes_input: bool,
}

impl Call for WriteInputRequest {
    type Reply = ();
    type Item = NoItems;

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
