//! `revoke_trust`: ends the trust in definitions.

use std::path::{Path, PathBuf};

use brigade_agent::definition::{DefinitionDigest, repository_of};
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokeTrustRequest {
    pub cwd: String,
    /// A repository as listed, which may no longer exist; `None` is the repository of `cwd`.
    #[serde(default)]
    pub repository: Option<PathBuf>,
    /// The definitions; if empty, all of the repository.
    pub digests: Vec<DefinitionDigest>,
}

impl Call for RevokeTrustRequest {
    /// The number of definitions that are no longer trusted.
    type Reply = usize;
    type Item = NoItems;

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
