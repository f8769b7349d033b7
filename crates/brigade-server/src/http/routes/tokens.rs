//! `/v1/tokens`: the tokens of callers. Only for the operator.

use axum::extract::State;
use brigade_model::ids::Millis;
use brigade_protocol::http::{NewTokenBody, TokenBody, TokenListBody, TokenRequestBody};
use http::StatusCode;

use super::HttpState;
use crate::http::access_token::{self, NewToken, TokenAccess};
use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, JsonBody};
use crate::http::problem::Problem;

/// List the valid tokens, without their secrets
#[utoipa::path(
    get, path = "/v1/tokens", tag = "access",
    responses((status = 200, description = "The tokens", body = TokenListBody), Problem)
)]
pub(super) async fn list_tokens(
    State(state): State<HttpState>,
    caller: HttpCaller,
) -> Result<JsonBody<TokenListBody>, Problem> {
    caller.require_operator("list tokens")?;
    let tokens = access_token::list_tokens(&state.daemon.runtime).await?;
    let items: Vec<TokenBody> = tokens.iter().map(|token| token.body()).collect();
    Ok(JsonBody(TokenListBody { items }))
}

/// Create a token
#[utoipa::path(
    post, path = "/v1/tokens", tag = "access", request_body = TokenRequestBody,
    responses((status = 201, description = "The token and its secret", body = NewTokenBody), Problem)
)]
pub(super) async fn create_token(
    State(state): State<HttpState>,
    caller: HttpCaller,
    JsonBody(request): JsonBody<TokenRequestBody>,
) -> Result<(StatusCode, JsonBody<NewTokenBody>), Problem> {
    caller.require_operator("create tokens")?;
    let session = match &request.session {
        Some(id) => Some(caller.session(id).await?.id()),
        None => None,
    };
    let token = NewToken {
        name: request.name,
        access: TokenAccess::of(request.scope, session)?,
        expires_in: request.expires_in_ms.map(Millis),
        from_login: false,
    };
    let created = access_token::create_token(&state.daemon.runtime, token).await?;
    Ok((StatusCode::CREATED, JsonBody(created.body())))
}

/// Revoke a token
#[utoipa::path(
    delete, path = "/v1/tokens/{id}", tag = "access", params(("id" = String, Path)),
    responses((status = 204, description = "The token is revoked"), Problem)
)]
pub(super) async fn revoke_token(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<String>,
) -> Result<StatusCode, Problem> {
    caller.require_operator("revoke tokens")?;
    state.daemon.revoke_token(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
