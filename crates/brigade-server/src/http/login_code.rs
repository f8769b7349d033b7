//! Login codes: a browser exchanges one for a token.

use std::time::Duration;

use brigade_model::ids::{Millis, Time};
use brigade_model::refusal::Refusal;
use brigade_runtime::Runtime;
use brigade_store::{ExpectedVersion, NewRecord, RecordKey, RecordKind};

use super::access_token::{AccessSecret, CreatedToken, NewToken, TokenAccess, create_token};

const LOGIN_KIND: RecordKind = RecordKind::from_static("http-login");
/// The time in which a code is valid.
const CODE_LIFETIME: Duration = Duration::from_secs(60);
/// The time in which the token of a browser is valid.
const BROWSER_TOKEN_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// The name of the token that a browser gets.
const BROWSER_NAME: &str = "dashboard";

/// A code for one login as the operator.
#[derive(Clone, Debug)]
pub(crate) struct LoginCode {
    pub(crate) code: AccessSecret,
    pub(crate) expires_at: Time,
}

pub(crate) async fn create_login_code(runtime: &Runtime) -> Result<LoginCode, Refusal> {
    let code = AccessSecret::generate()?;
    let expires_at = runtime.clock().now().after(Millis::from(CODE_LIFETIME));
    let key = RecordKey::new(LOGIN_KIND, code.digest())?;
    let record = NewRecord::new(key, BROWSER_NAME)?.expires_at(expires_at);
    runtime.records().put(&record, ExpectedVersion::Absent).await?;
    Ok(LoginCode { code, expires_at })
}

/// Exchanges a code for a token. The code is used from then on; `None` if it was not valid.
pub(crate) async fn exchange_login_code(
    runtime: &Runtime,
    code: &str,
) -> Result<Option<CreatedToken>, Refusal> {
    let Some(code) = AccessSecret::parse(code) else { return Ok(None) };
    let key = RecordKey::new(LOGIN_KIND, code.digest())?;
    if runtime.records().take(&key).await?.is_none() {
        return Ok(None);
    }
    let token = NewToken {
        name: BROWSER_NAME.to_owned(),
        access: TokenAccess::Operator,
        expires_in: Some(BROWSER_TOKEN_LIFETIME.into()),
        from_login: true,
    };
    create_token(runtime, token).await.map(Some)
}
