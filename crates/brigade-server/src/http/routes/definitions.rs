//! `/v1/definitions`: the definitions of agents for a directory.

use std::path::Path;

use brigade_model::refusal::Refusal;
use brigade_protocol::http::DefinitionListBody;
use brigade_protocol::requests::ListAgentsRequest;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::access_token::TokenAccess;
use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiQuery, JsonBody};
use crate::http::problem::Problem;
use crate::http::workspace_scope::{WorkspaceScope, find_directory};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DefinitionQuery {
    /// The directory, an absolute path. A client's token names one of its session's workspace.
    #[param(pattern = "^/")]
    cwd: String,
    /// The language of titles and descriptions, as a tag such as `de-AT`.
    #[serde(default)]
    lang: Option<String>,
}

/// List the definitions of agents for a directory
#[utoipa::path(
    get, path = "/v1/definitions", tag = "tasks", params(DefinitionQuery),
    responses((status = 200, description = "The definitions", body = DefinitionListBody), Problem)
)]
pub(super) async fn list_definitions(
    caller: HttpCaller,
    ApiQuery(query): ApiQuery<DefinitionQuery>,
) -> Result<JsonBody<DefinitionListBody>, Problem> {
    let DefinitionQuery { cwd, lang } = query;
    if !Path::new(&cwd).is_absolute() {
        return Err(Refusal::invalid("`cwd` is not an absolute path").into());
    }
    // A client's path is checked first, so that the answer says nothing of paths elsewhere.
    let cwd = match caller.token.access {
        TokenAccess::Client { session } => {
            let session = caller.session_of(session).await?;
            WorkspaceScope::of(&session).restrict(cwd).await?
        }
        TokenAccess::Operator | TokenAccess::ReadOnly => cwd,
    };
    find_directory(cwd.clone()).await?;
    let reply = caller.reader().call(ListAgentsRequest { cwd, lang }).await?;
    Ok(JsonBody(reply.into()))
}
