//! Ends a session.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Close {
    pub session: String,
    #[serde(default)]
    pub reason: Option<String>,
}

impl Ask for Close {
    type Done = ();
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<(), Refusal> {
        desk.existing(&self.session).await?.close(self.reason.as_deref()).await
    }
}
