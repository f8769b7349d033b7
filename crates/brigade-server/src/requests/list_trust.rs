//! `list_trust`: lists all trusted definitions.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;
use crate::trust_store::TrustedRepository;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListTrustRequest {}

impl Call for ListTrustRequest {
    type Reply = Vec<TrustedRepository>;
    type Item = NoItems;

    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Self::Reply, Refusal> {
        context.require_operator("see what is trusted")?;
        Ok(context.trust_store()?.list())
    }
}
