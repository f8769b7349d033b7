//! Bytes for a command's input, as they are.

use brigade_model::command::ClientControl;
use brigade_model::refusal::Refusal;
use brigade_runtime::processes::InputPiece;
use serde::{Deserialize, Serialize};

use super::Base64Bytes;
use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, TaskTarget};

/// Answered when they are where the command finds them, also if this daemon dies. Asked again, they still
/// arrive once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WriteInputRequest {
    pub target: TaskTarget,
    /// A random number of the writer's own.
    pub writer: u64,
    /// How many bytes it has written before.
    pub offset: u64,
    pub bytes: Base64Bytes,
    /// Nothing follows.
    #[serde(default)]
    pub closes_input: bool,
}

impl Call for WriteInputRequest {
    type Reply = ();
    type Item = NoItems;

    async fn handle(self, desk: &RequestContext, _: &ItemSender<NoItems>) -> Result<(), Refusal> {
        let found = desk.find_task(&self.target).await?;
        if !desk.is_owner_of(&found.row) && desk.control != ClientControl::Shared {
            let address = found.row.address(found.no);
            return Err(Refusal::forbidden(format!("{address} was started by another client")));
        }
        if self.writer == 0 {
            return Err(Refusal::invalid("the writer of an input is not 0"));
        }
        let Self { writer, offset, bytes: Base64Bytes(bytes), closes_input: last, .. } = self;
        let piece = InputPiece { writer, offset, bytes: bytes.into(), closes_input: last };
        found.session.write_input(found.no, piece).await
    }
}
