//! `show_trust`: shows the definitions of a workspace with their texts and their trust.

use brigade_agent::definition::DefinitionDigest;
use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowTrustRequest {
    pub cwd: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowTrustReply {
    /// The repository that the trust covers: the directory that all its worktrees share, or the
    /// workspace itself.
    pub repository: String,
    pub definitions: Vec<DefinitionItem>,
}

/// A definition with its whole text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DefinitionItem {
    pub name: String,
    pub file: String,
    pub digest: DefinitionDigest,
    pub trusted: bool,
    pub text: String,
}

impl Call for ShowTrustRequest {
    type Reply = ShowTrustReply;
    type Item = NoItems;
}
