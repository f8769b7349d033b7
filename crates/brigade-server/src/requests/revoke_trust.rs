//! Ends the trust in definitions.

use std::path::{Path, PathBuf};

use brigade_agent::definition::{DefinitionDigest, repository_of};
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokeTrustRequest {
    pub cwd: String,
    /// A repository as it is listed, which need not be there any more; that of `cwd`, when there is none.
    #[serde(default)]
    pub repository: Option<PathBuf>,
    /// All of the repository, when there are none.
    pub digests: Vec<DefinitionDigest>,
}

impl Call for RevokeTrustRequest {
    /// How many definitions are not trusted any more.
    type Reply = usize;
    type Item = NoItems;

    async fn handle(
        self,
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<usize, Refusal> {
        desk.require_operator("end the trust in a definition")?;
        let repository = self.repository.unwrap_or_else(|| repository_of(Path::new(&self.cwd)));
        let revoked = desk.trust_store()?.revoke(&repository, &self.digests);
        revoked.map_err(|error| Refusal::unavailable(format!("it cannot be stored: {error}")))
    }
}
