//! Ends a session.

use brigade_model::refusal::Refusal;
use brigade_model::tree::SessionState;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Close {
    pub session: String,
    #[serde(default)]
    pub reason: Option<String>,
}

/// How the session was found and how it was left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Closed {
    pub before: SessionState,
    /// Closing, while what runs in it is being stopped.
    pub after: SessionState,
}

impl Ask for Close {
    type Done = Closed;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<Closed, Refusal> {
        let session = desk.existing(&self.session).await?;
        let before = session.row().state;
        session.close(self.reason.as_deref()).await?;
        Ok(Closed { before, after: session.row().state })
    }
}
