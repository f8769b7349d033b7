//! Tokens: the secrets that callers of the HTTP API send.
//!
//! The store has a record for each token, under the digest of its secret. It never has the secret.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brigade_model::event_author::CallerOrigin;
use brigade_model::ids::{Millis, SessionId, Time};
use brigade_model::refusal::Refusal;
use brigade_protocol::http::{NewTokenBody, TokenBody, TokenScope};
use brigade_protocol::random_bytes::random_bytes;
use brigade_runtime::Runtime;
use brigade_store::{ExpectedVersion, NewRecord, RecordItem, RecordKey, RecordKind, RecordQuery};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const TOKEN_KIND: RecordKind = RecordKind::from_static("http-token");
const SECRET_PREFIX: &str = "brg_";
const SECRET_BYTES: usize = 32;
/// The length of a token's id: the first digits of the digest of its secret.
const ID_DIGITS: usize = 16;
const NAME_CHARS_MAX: usize = 64;

/// The secret of a token or login. Its debug form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AccessSecret(String);

impl AccessSecret {
    pub(crate) fn generate() -> Result<Self, Refusal> {
        let random: [u8; SECRET_BYTES] = random_bytes()
            .map_err(|error| Refusal::unavailable(format!("no random bytes: {error}")))?;
        Ok(Self(format!("{SECRET_PREFIX}{}", URL_SAFE_NO_PAD.encode(random))))
    }

    /// Returns the secret; `None` if the text has another form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let encoded = text.strip_prefix(SECRET_PREFIX)?;
        let is_whole = encoded.len() == (SECRET_BYTES * 8).div_ceil(6)
            && encoded.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        is_whole.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the digest under which a record is stored. A look-up by digest takes a time that says
    /// nothing about the secret.
    pub(crate) fn digest(&self) -> String {
        Sha256::digest(&self.0).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for AccessSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// A token as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessToken {
    /// The name of its bearer.
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) access: TokenAccess,
    pub(crate) created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Time>,
    /// True if a browser got the token for a login code.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) from_login: bool,
    /// The id, which is part of the record's key.
    #[serde(skip)]
    pub(crate) id: String,
}

/// The rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "snake_case")]
pub(crate) enum TokenAccess {
    Operator,
    Client { session: SessionId },
    ReadOnly,
}

/// A token to create.
#[derive(Clone, Debug)]
pub(crate) struct NewToken {
    pub(crate) name: String,
    pub(crate) access: TokenAccess,
    /// `None` is valid until it is revoked.
    pub(crate) expires_in: Option<Millis>,
    pub(crate) from_login: bool,
}

/// A token with its secret.
#[derive(Clone, Debug)]
pub(crate) struct CreatedToken {
    pub(crate) secret: AccessSecret,
    pub(crate) token: AccessToken,
}

impl TokenAccess {
    /// Returns the rights of a scope. Only a client's token has a session.
    pub(crate) fn of(scope: TokenScope, session: Option<SessionId>) -> Result<Self, Refusal> {
        match (scope, session) {
            (TokenScope::Operator, None) => Ok(Self::Operator),
            (TokenScope::ReadOnly, None) => Ok(Self::ReadOnly),
            (TokenScope::Client, Some(session)) => Ok(Self::Client { session }),
            (TokenScope::Client, None) => Err(Refusal::invalid("a client's token needs a session")),
            (TokenScope::Operator | TokenScope::ReadOnly, Some(_)) => {
                Err(Refusal::invalid("only a client's token has a session"))
            }
        }
    }
}

impl CreatedToken {
    pub(crate) fn body(&self) -> NewTokenBody {
        NewTokenBody { secret: self.secret.as_str().to_owned(), token: self.token.body() }
    }
}

impl AccessToken {
    /// Returns the name under which its bearer acts as a client. A client's token has names of its
    /// own, so that it never acts as a client of the socket or as an operator's token.
    pub(crate) fn client_name(&self) -> String {
        match self.access {
            TokenAccess::Client { .. } => format!("token:{}", self.name),
            TokenAccess::Operator | TokenAccess::ReadOnly => self.name.clone(),
        }
    }

    /// Returns the label of events that its bearer causes. Another token of the same name has
    /// another id.
    pub(crate) fn origin(&self) -> CallerOrigin {
        let Self { name, id, .. } = self;
        match self.from_login {
            true => CallerOrigin::from(format!("dashboard ({id})")),
            false => CallerOrigin::from(format!("token {name} ({id})")),
        }
    }

    pub(crate) fn body(&self) -> TokenBody {
        let (scope, session) = match self.access {
            TokenAccess::Operator => (TokenScope::Operator, None),
            TokenAccess::Client { session } => (TokenScope::Client, Some(session.to_string())),
            TokenAccess::ReadOnly => (TokenScope::ReadOnly, None),
        };
        TokenBody {
            id: self.id.clone(),
            name: self.name.clone(),
            scope,
            session,
            created_at: self.created_at.into(),
            expires_at: self.expires_at.map(Into::into),
            from_login: self.from_login,
        }
    }

    fn decode(key: &str, value: &[u8]) -> Result<Self, Refusal> {
        let stored: Self = serde_json::from_slice(value)
            .map_err(|error| Refusal::internal(format!("a stored token is wrong: {error}")))?;
        Ok(Self { id: key.chars().take(ID_DIGITS).collect(), ..stored })
    }
}

/// Creates a token, and returns its secret for the only time.
pub(crate) async fn create_token(
    runtime: &Runtime,
    request: NewToken,
) -> Result<CreatedToken, Refusal> {
    let NewToken { name, access, expires_in, from_login } = request;
    check_name(&name)?;
    let secret = AccessSecret::generate()?;
    let digest = secret.digest();
    let created_at = runtime.clock().now();
    let expires_at = expires_in.map(|lifetime| created_at.after(lifetime));
    let id = digest.chars().take(ID_DIGITS).collect();
    let token = AccessToken { name, access, created_at, expires_at, from_login, id };
    let mut record = NewRecord::new(RecordKey::new(TOKEN_KIND, digest)?, encode(&token)?)?;
    if let Some(expires_at) = expires_at {
        record = record.expires_at(expires_at);
    }
    runtime.records().put(&record, ExpectedVersion::Absent).await?;
    Ok(CreatedToken { secret, token })
}

/// Returns the token of a secret, if it is valid now.
pub(crate) async fn find_token(
    runtime: &Runtime,
    secret: &AccessSecret,
) -> Result<Option<AccessToken>, Refusal> {
    let key = RecordKey::new(TOKEN_KIND, secret.digest())?;
    let record = runtime.records().get(&key).await?;
    record.map(|record| AccessToken::decode(key.key(), &record.value)).transpose()
}

/// Returns all valid tokens, in the order of their ids.
pub(crate) async fn list_tokens(runtime: &Runtime) -> Result<Vec<AccessToken>, Refusal> {
    let mut tokens = Vec::new();
    let mut query = RecordQuery::new(TOKEN_KIND);
    loop {
        let page = runtime.records().list(&query).await?;
        for item in &page.items {
            tokens.push(AccessToken::decode(&item.key, &item.record.value)?);
        }
        match page.next {
            Some(next) => query = query.after(next),
            None => return Ok(tokens),
        }
    }
}

/// Removes a token. Requests with it are refused from now on. Open ones are ended by
/// [`DaemonState::revoke_token`](crate::request_context::DaemonState::revoke_token).
pub(super) async fn revoke_token(runtime: &Runtime, id: &str) -> Result<AccessToken, Refusal> {
    let unknown = || Refusal::not_found(format!("there is no token {id:?}"));
    let is_id = id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id {
        return Err(unknown());
    }
    let found = find_by_id(runtime, id).await?;
    let RecordItem { key, record } = found.ok_or_else(unknown)?;
    runtime.records().take(&RecordKey::new(TOKEN_KIND, key.clone())?).await?;
    AccessToken::decode(&key, &record.value)
}

/// Returns true if the token with this id was neither revoked nor has expired.
pub(crate) async fn is_valid_token(runtime: &Runtime, id: &str) -> Result<bool, Refusal> {
    Ok(find_by_id(runtime, id).await?.is_some())
}

async fn find_by_id(runtime: &Runtime, id: &str) -> Result<Option<RecordItem>, Refusal> {
    // The keys are ordered, and a key starts with its id.
    let query = RecordQuery::new(TOKEN_KIND).after(id.to_owned()).limit(1)?;
    let page = runtime.records().list(&query).await?;
    Ok(page.items.into_iter().next().filter(|item| item.key.starts_with(id)))
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(value)
        .map_err(|error| Refusal::internal(format!("a record cannot be encoded: {error}")))
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let count = name.chars().count();
    if name.trim().is_empty() || count > NAME_CHARS_MAX || name.chars().any(char::is_control) {
        return Err(Refusal::invalid(format!(
            "the name of a token has 1 to {NAME_CHARS_MAX} printable characters"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_256_random_bits_and_is_not_shown() {
        let secret = AccessSecret::generate().expect("random bytes");
        assert_eq!(AccessSecret::parse(secret.as_str()), Some(secret.clone()));
        assert_ne!(AccessSecret::generate().expect("random bytes"), secret);
        assert_eq!(format!("{secret:?}"), "[secret]");
        let text = secret.as_str();
        for wrong in ["", "brg_", &text[1..], &text[..46], &format!("{text}A")] {
            assert_eq!(AccessSecret::parse(wrong), None, "{wrong}");
        }
    }
}
