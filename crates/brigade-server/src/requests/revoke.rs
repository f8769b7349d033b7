//! Takes back what was allowed for good.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Revoke {
    pub session: String,
    pub grant: u32,
}

impl Ask for Revoke {
    type Done = ();
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<(), Refusal> {
        desk.existing(&self.session).await?.revoke(self.grant).await
    }
}
