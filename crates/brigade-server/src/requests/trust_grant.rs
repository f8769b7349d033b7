//! Trusts definitions of a workspace.

use std::path::Path;

use brigade_agent::definition::{DefinitionDigest, repository_of};
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;
use crate::trust::{TrustedDefinition, TrustedRepository};

/// Trusts exactly the files that somebody has seen: by their digests, in the repository of a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrantTrust {
    pub cwd: String,
    pub digests: Vec<DefinitionDigest>,
}

impl Ask for GrantTrust {
    type Done = TrustedRepository;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<TrustedRepository, Refusal> {
        desk.operator_only("trust a definition")?;
        let trust = desk.trust()?;
        let there = desk.runtime().workspace_definitions(Some(&self.cwd))?;
        let mut definitions = Vec::new();
        for digest in self.digests {
            let Some(found) = there.iter().find(|one| one.source.digest == digest) else {
                return Err(Refusal::not_found(format!(
                    "no agent definition of this directory has the digest {digest}; it may have \
                     been changed: look again"
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
