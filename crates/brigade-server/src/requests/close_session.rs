//! `close_session`: closes a session.

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

/// The state of the session before and after the request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloseSessionReply {
    pub state_before: SessionState,
    /// Closing while its tasks are being stopped.
    pub state_after: SessionState,
}

impl Call for CloseSessionRequest {
    type Reply = CloseSessionReply;
    type Item = NoItems;

    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<CloseSessionReply, Refusal> {
        let session = context.existing_session(&self.session).await?;
        let before = session.row().state;
        session.close(self.reason.as_deref()).await?;
        Ok(CloseSessionReply { state_before: before, state_after: session.row().state })
    }
}
