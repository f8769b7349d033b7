//! Ends a session.

use brigade_model::refusal::Refusal;
use brigade_model::task_tree::SessionState;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloseSessionRequest {
    pub session: String,
    #[serde(default)]
    pub reason: Option<String>,
}

/// How the session was found and how it was left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloseSessionReply {
    pub state_before: SessionState,
    /// Closing, while what runs in it is being stopped.
    pub state_after: SessionState,
}

impl Call for CloseSessionRequest {
    type Reply = CloseSessionReply;
    type Item = NoItems;

    async fn handle(
        self,
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<CloseSessionReply, Refusal> {
        let session = desk.existing_session(&self.session).await?;
        let before = session.row().state;
        session.close(self.reason.as_deref()).await?;
        Ok(CloseSessionReply { state_before: before, state_after: session.row().state })
    }
}
