//! Ends the trust in definitions.

use std::path::{Path, PathBuf};

use brigade_agent::definition::{DefinitionDigest, repository_of};
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokeTrust {
    pub cwd: String,
    /// A repository as it is listed, which need not be there any more; that of `cwd`, when there is none.
    #[serde(default)]
    pub repository: Option<PathBuf>,
    /// All of the repository, when there are none.
    pub digests: Vec<DefinitionDigest>,
}

impl Ask for RevokeTrust {
    /// How many definitions are not trusted any more.
    type Done = usize;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<usize, Refusal> {
        desk.operator_only("end the trust in a definition")?;
        let repository = self.repository.unwrap_or_else(|| repository_of(Path::new(&self.cwd)));
        let revoked = desk.trust()?.revoke(&repository, &self.digests);
        revoked.map_err(|error| Refusal::unavailable(format!("it cannot be stored: {error}")))
    }
}
