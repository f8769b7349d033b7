//! `grant_trust`: trusts definitions of a workspace.

use std::path::Path;

use brigade_agent::definition::repository_of;
use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{GrantTrustRequest, TrustedDefinition, TrustedRepository};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for GrantTrustRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<TrustedRepository, Refusal> {
        context.require_operator("trust a definition")?;
        let trust = context.trust_store()?;
        let present = context.runtime().workspace_definitions(Some(&self.cwd))?;
        let mut definitions = Vec::new();
        for digest in self.digests {
            let Some(found) = present.iter().find(|one| one.source.digest == digest) else {
                return Err(Refusal::not_found(format!(
                    "no agent definition of this directory has the digest {digest}; the file may \
                     have changed: show it again"
                )));
            };
            definitions.push(TrustedDefinition { name: found.name.clone(), digest });
        }
        let repository = repository_of(Path::new(&self.cwd));
        trust
            .grant(&repository, definitions.clone())
            .map_err(|error| Refusal::unavailable(format!("trust cannot be stored: {error}")))?;
        Ok(TrustedRepository { repository: repository.display().to_string(), definitions })
    }
}
