//! `revoke_token`: revokes a token of the HTTP API.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::http::TokenBody;

/// The token to revoke. Only for the operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokeTokenRequest {
    pub id: String,
}

impl Call for RevokeTokenRequest {
    type Reply = TokenBody;
    type Item = NoItems;
}
