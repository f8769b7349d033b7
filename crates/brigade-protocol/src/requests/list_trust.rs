//! `list_trust`: lists all trusted definitions.

use brigade_agent::definition::DefinitionDigest;
use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListTrustRequest {}

impl Call for ListTrustRequest {
    type Reply = Vec<TrustedRepository>;
    type Item = NoItems;
}

/// The trusted definitions of one repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedRepository {
    pub repository: String,
    pub definitions: Vec<TrustedDefinition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedDefinition {
    pub name: String,
    pub digest: DefinitionDigest,
}
