//! Takes back what was allowed for good.

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

    async fn handle(self, desk: &RequestContext, _: &ItemSender<NoItems>) -> Result<(), Refusal> {
        desk.existing_session(&self.session).await?.revoke(self.grant).await
    }
}
