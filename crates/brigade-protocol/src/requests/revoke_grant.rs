//! `revoke_grant`: revokes a grant.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokeGrantRequest {
    pub session: String,
    pub grant: u32,
}

impl Call for RevokeGrantRequest {
    type Reply = ();
    type Item = NoItems;
}
