//! Bytes for a command's input, as they are.

use brigade_model::command::ClientControl;
use brigade_model::refusal::Refusal;
use brigade_runtime::processes::InputPiece;
use serde::{Deserialize, Serialize};

use super::Bytes;
use crate::ask::{Ask, Items, Never};
use crate::desk::{Desk, Target};

/// Answered when they are where the command finds them, also if this daemon dies. Asked again, they still
/// arrive once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WriteInput {
    pub target: Target,
    /// A random number of the writer's own.
    pub writer: u64,
    /// How many bytes it has written before.
    pub offset: u64,
    pub bytes: Bytes,
    /// Nothing follows.
    #[serde(default)]
    pub last: bool,
}

impl Ask for WriteInput {
    type Done = ();
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<(), Refusal> {
        let found = desk.find(&self.target).await?;
        if !desk.has_started(&found.row) && desk.control != ClientControl::Shared {
            let address = found.row.address(found.no);
            return Err(Refusal::forbidden(format!("{address} was started by another client")));
        }
        if self.writer == 0 {
            return Err(Refusal::invalid("the writer of an input is not 0"));
        }
        let Self { writer, offset, bytes: Bytes(bytes), last, .. } = self;
        let piece = InputPiece { writer, offset, bytes: bytes.into(), last };
        found.session.write_input(found.no, piece).await
    }
}
