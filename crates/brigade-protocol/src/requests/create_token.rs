//! `create_token`: creates a token of the HTTP API.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::http::{NewTokenBody, TokenScope};

/// A token to create. Only for the operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateTokenRequest {
    /// The name of its bearer, which events record.
    pub name: String,
    pub scope: TokenScope,
    /// The name of the session of a client's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

impl Call for CreateTokenRequest {
    type Reply = NewTokenBody;
    type Item = NoItems;
}
