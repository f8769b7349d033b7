//! `grant_trust`: trusts definitions of a workspace.

use brigade_agent::definition::DefinitionDigest;
use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::requests::TrustedRepository;

/// The digests of the files that the operator has seen, in the repository of a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrantTrustRequest {
    pub cwd: String,
    pub digests: Vec<DefinitionDigest>,
}

impl Call for GrantTrustRequest {
    type Reply = TrustedRepository;
    type Item = NoItems;
}
