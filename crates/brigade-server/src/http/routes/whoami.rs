//! `/v1/whoami`: the identity of the caller.

use axum::extract::State;
use brigade_protocol::http::WhoAmIBody;

use super::HttpState;
use crate::http::caller::HttpCaller;
use crate::http::extract::JsonBody;
use crate::http::problem::Problem;

/// Show the token of this request and the server's version
#[utoipa::path(
    get, path = "/v1/whoami", tag = "access",
    responses((status = 200, description = "The caller", body = WhoAmIBody), Problem)
)]
pub(super) async fn whoami(
    State(state): State<HttpState>,
    caller: HttpCaller,
) -> JsonBody<WhoAmIBody> {
    JsonBody(WhoAmIBody {
        token: caller.token.body(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cursor: state.cursor().to_string(),
    })
}
