//! Tokens, logins, and the identity of a caller.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ApiTime;

/// The rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenScope {
    /// Sees and controls everything.
    Operator,
    /// Acts as a named client in one session, and controls the tasks that it started.
    Client,
    /// Sees everything and changes nothing.
    ReadOnly,
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Token)]
pub struct TokenBody {
    /// The id by which it is revoked.
    pub id: String,
    /// The name of its bearer, which events record.
    pub name: String,
    pub scope: TokenScope,
    /// The session of a `client` token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub created_at: ApiTime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<ApiTime>,
    /// A browser got it for a login code of `brigade dashboard`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_login: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TokenList)]
pub struct TokenListBody {
    pub items: Vec<TokenBody>,
}

/// A request for a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TokenRequest)]
pub struct TokenRequestBody {
    pub name: String,
    pub scope: TokenScope,
    /// The id of the session of a `client` token, and of no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The time after which it is invalid. Without it, the token is valid until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

/// A new token. This answer is the only one that has the secret.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = NewToken)]
pub struct NewTokenBody {
    /// The secret: `Authorization: Bearer SECRET`.
    pub secret: String,
    pub token: TokenBody,
}

impl std::fmt::Debug for NewTokenBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewTokenBody").field("token", &self.token).finish_non_exhaustive()
    }
}

#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LoginRequest)]
pub struct LoginRequestBody {
    /// The code of the URL that `brigade dashboard` prints. It is valid once, for 60 seconds.
    pub code: String,
}

impl std::fmt::Debug for LoginRequestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoginRequestBody")
    }
}

/// The answer to a login.
pub type LoginBody = NewTokenBody;

/// The identity of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WhoAmI)]
pub struct WhoAmIBody {
    pub token: TokenBody,
    /// The version of the server.
    pub version: String,
    /// The newest place in the feed of events.
    pub cursor: String,
}
