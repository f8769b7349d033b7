//! `revoke_trust`: ends the trust in definitions.

use std::path::PathBuf;

use brigade_agent::definition::DefinitionDigest;
use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

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
}
