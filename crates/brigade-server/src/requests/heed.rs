//! Waits for tasks, and hears what they ask and wait for.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::wait::Until;
use super::{Wait, Waited};
use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;

/// A wait that a question ends too, and a call below one of the tasks that the user has to approve:
/// nothing is taken then, and who asks or waits is among those that go on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heed(pub Wait);

impl Ask for Heed {
    type Done = Waited;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<Waited, Refusal> {
        self.0.carry_out(desk, Until::EndedOrAsked).await
    }
}
