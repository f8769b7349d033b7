//! `grant_trust`: trusts definitions of a workspace.

use std::path::Path;

use brigade_agent::definition::{DefinitionDigest, repository_of};
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;
use crate::trust_store::{TrustedDefinition, TrustedRepository};

/// The digests of the files that the operator has seen, in the repository of a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrantTrustRequest {
    pub cwd: String,
    pub digests: Vec<DefinitionDigest>,
}

impl Call for GrantTrustRequest {
    type Reply = TrustedRepository;
    type Item = NoItems;

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
