//! Asks the daemon to leave. Commands go on without it.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Leave {}

impl Ask for Leave {
    type Done = ();
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<(), Refusal> {
        desk.operator_only("stop the daemon")?;
        desk.leave();
        Ok(())
    }
}
