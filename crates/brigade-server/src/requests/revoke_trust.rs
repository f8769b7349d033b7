//! `revoke_trust`: ends the trust in definitions.

use std::path::Path;

use brigade_agent::definition::repository_of;
use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::RevokeTrustRequest;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for RevokeTrustRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<usize, Refusal> {
        context.require_operator("end the trust in a definition")?;
        let repository = self.repository.unwrap_or_else(|| repository_of(Path::new(&self.cwd)));
        let revoked = context.trust_store()?.revoke(&repository, &self.digests);
        revoked.map_err(|error| Refusal::unavailable(format!("it cannot be stored: {error}")))
    }
}
