//! `revoke_grant`: revokes a grant.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokeGrantRequest {
    pub session: String,
    pub grant: u32,
}

impl Call for RevokeGrantRequest {
    type Reply = ();
    type Item = NoItems;

    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<(), Refusal> {
        context.existing_session(&self.session).await?.revoke(self.grant).await
    }
}
