//! `/v1/login`, `/v1/logout`: the tokens of browsers.

use axum::extract::State;
use brigade_protocol::http::{LoginRequestBody, NewTokenBody};
use http::StatusCode;

use super::HttpState;
use crate::http::caller::HttpCaller;
use crate::http::extract::JsonBody;
use crate::http::login_code::exchange_login_code;
use crate::http::problem::Problem;

/// Exchange a login code for a token
#[utoipa::path(
    post, path = "/v1/login", tag = "access", security(()), request_body = LoginRequestBody,
    responses((status = 200, description = "The token", body = NewTokenBody), Problem)
)]
pub(super) async fn login(
    State(state): State<HttpState>,
    JsonBody(request): JsonBody<LoginRequestBody>,
) -> Result<JsonBody<NewTokenBody>, Problem> {
    let created = exchange_login_code(&state.daemon.runtime, &request.code).await?;
    let text = "the code is wrong, was used, or has expired; `brigade dashboard` makes another";
    let created = created.ok_or_else(|| Problem::unauthenticated(text))?;
    Ok(JsonBody(created.body()))
}

/// Revoke the token of this request
#[utoipa::path(
    post, path = "/v1/logout", tag = "access",
    responses((status = 204, description = "The token is revoked"), Problem)
)]
pub(super) async fn logout(
    State(state): State<HttpState>,
    caller: HttpCaller,
) -> Result<StatusCode, Problem> {
    state.daemon.revoke_token(&caller.token.id).await?;
    Ok(StatusCode::NO_CONTENT)
}
