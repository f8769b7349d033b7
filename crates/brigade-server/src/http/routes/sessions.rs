//! `/v1/sessions`: the sessions that the caller sees.

use std::path::Path;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use brigade_model::refusal::Refusal;
use brigade_model::task_tree::SessionState;
use brigade_protocol::http::{
    CloseRequestBody, LimitsBody, MoveRequestBody, RequiredLabelsRequestBody, SessionBody,
    SessionListBody, SessionRequestBody,
};
use brigade_protocol::requests::{CloseSessionRequest, MoveSessionRequest, RequireLabelsRequest};
use brigade_protocol::workspace::session_name_of;
use brigade_runtime::Session;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::HttpState;
use crate::fleet_view::SessionPlacements;
use crate::http::access_token::TokenAccess;
use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, ApiQuery, JsonBody, OptionalJson};
use crate::http::problem::Problem;
use crate::http::workspace_scope::{WorkspaceScope, find_directory};

/// Selects sessions.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SessionFilter {
    /// The session of this directory. A client's token names one of its session's workspace.
    workspace: Option<String>,
    /// The session of this name.
    name: Option<String>,
    /// Includes closed sessions. Not for a client's token.
    include_closed: bool,
}

/// List sessions
#[utoipa::path(
    get, path = "/v1/sessions", tag = "sessions", params(SessionFilter),
    responses((status = 200, description = "The sessions", body = SessionListBody), Problem)
)]
pub(super) async fn list_sessions(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiQuery(filter): ApiQuery<SessionFilter>,
) -> Result<JsonBody<SessionListBody>, Problem> {
    let mut sessions = caller.sessions().await?;
    if filter.include_closed {
        sessions.extend(caller.closed_sessions().await?);
    }
    let workspace = match filter.workspace {
        Some(directory) => {
            Some(find_workspace(restrict_workspace(&caller, directory).await?).await?)
        }
        None => None,
    };
    let placements = caller.reader().session_placements(&sessions).await?;
    let mut items = Vec::new();
    for session in &sessions {
        let body = new_session_body(&state, session, &placements);
        let is_wanted = |name: &Option<String>| name.as_ref().is_none_or(|name| *name == body.name);
        if is_wanted(&filter.name) && is_wanted(&workspace) {
            items.push(body);
        }
    }
    Ok(JsonBody(SessionListBody { items }))
}

/// Open the session of a directory or of a name
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions", request_body = SessionRequestBody,
    responses(
        (status = 200, description = "The session was open", body = SessionBody),
        (status = 201, description = "A new session", body = SessionBody),
        Problem
    )
)]
pub(super) async fn open_session(
    State(state): State<HttpState>,
    caller: HttpCaller,
    JsonBody(request): JsonBody<SessionRequestBody>,
) -> Result<Response, Problem> {
    caller.require_operator("open sessions")?;
    let name = match request {
        SessionRequestBody::Workspace(directory) => find_workspace(directory).await?,
        SessionRequestBody::Name(name) => name,
    };
    let context = caller.writer()?;
    let existed = context.runtime().find_session(&name).await?.is_some();
    let session = context.open_session(&name).await?;
    let status = if existed { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, JsonBody(show(&state, &caller, session).await?)).into_response())
}

/// Show a session
#[utoipa::path(
    get, path = "/v1/sessions/{session}", tag = "sessions", params(("session" = String, Path)),
    responses((status = 200, description = "The session", body = SessionBody), Problem)
)]
pub(super) async fn show_session(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<String>,
) -> Result<JsonBody<SessionBody>, Problem> {
    let session = caller.session(&id).await?;
    Ok(JsonBody(show(&state, &caller, session).await?))
}

/// Close a session: its tasks are stopped, and nothing new starts in it
#[utoipa::path(
    post, path = "/v1/sessions/{session}/close", tag = "sessions",
    params(("session" = String, Path)), request_body = Option<CloseRequestBody>,
    responses((status = 200, description = "The session", body = SessionBody), Problem)
)]
pub(super) async fn close_session(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<String>,
    OptionalJson(request): OptionalJson<CloseRequestBody>,
) -> Result<JsonBody<SessionBody>, Problem> {
    let session = caller.session(&id).await?;
    caller.require_operator("close sessions")?;
    let context = caller.writer()?.in_session(session.id());
    let reason = request.reason;
    context.call(CloseSessionRequest { session: String::new(), reason }).await?;
    Ok(JsonBody(show(&state, &caller, session).await?))
}

/// Give a session to a node of the fleet
///
/// The owner gives it up as soon as nothing of it runs: all its tasks wait or have ended. The answer is
/// sent before that; `node` says who owns the session.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/move", tag = "sessions",
    params(("session" = String, Path)), request_body = MoveRequestBody,
    responses((status = 200, description = "The session", body = SessionBody), Problem)
)]
pub(super) async fn move_session(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<String>,
    JsonBody(request): JsonBody<MoveRequestBody>,
) -> Result<JsonBody<SessionBody>, Problem> {
    let session = caller.session(&id).await?;
    caller.require_operator("move sessions")?;
    let context = caller.writer()?.in_session(session.id());
    let node = request.node;
    context.call(MoveSessionRequest { session: String::new(), node }).await?;
    Ok(JsonBody(show(&state, &caller, session).await?))
}

/// Set the labels that a node must have to own a session, in place of its earlier ones
///
/// If its owner has not all of them, the session moves to a node that has, as soon as nothing of it
/// runs. While no node has them, it stays with its owner, and without an owner its requests wait.
#[utoipa::path(
    put, path = "/v1/sessions/{session}/labels", tag = "sessions",
    params(("session" = String, Path)), request_body = RequiredLabelsRequestBody,
    responses((status = 200, description = "The session", body = SessionBody), Problem)
)]
pub(super) async fn require_labels(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<String>,
    JsonBody(request): JsonBody<RequiredLabelsRequestBody>,
) -> Result<JsonBody<SessionBody>, Problem> {
    let session = caller.session(&id).await?;
    caller.require_operator("set the labels of a session")?;
    let context = caller.writer()?.in_session(session.id());
    let RequiredLabelsRequestBody { labels } = request;
    context.call(RequireLabelsRequest { session: String::new(), labels }).await?;
    Ok(JsonBody(show(&state, &caller, session).await?))
}

/// Set the limits of a session, in place of its earlier ones
#[utoipa::path(
    put, path = "/v1/sessions/{session}/limits", tag = "sessions",
    params(("session" = String, Path)), request_body = LimitsBody,
    responses((status = 200, description = "The session", body = SessionBody), Problem)
)]
pub(super) async fn set_session_limits(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<String>,
    JsonBody(limits): JsonBody<LimitsBody>,
) -> Result<JsonBody<SessionBody>, Problem> {
    caller.require_operator("set the limits of a session")?;
    let session = caller.session(&id).await?;
    session.set_limits(limits.parse()?).await?;
    Ok(JsonBody(show(&state, &caller, session).await?))
}

async fn show(
    state: &HttpState,
    caller: &HttpCaller,
    session: Session,
) -> Result<SessionBody, Problem> {
    let placements = caller.reader().session_placements(std::slice::from_ref(&session)).await?;
    Ok(new_session_body(state, &session, &placements))
}

fn new_session_body(
    state: &HttpState,
    session: &Session,
    placements: &SessionPlacements,
) -> SessionBody {
    // The cursor is read first, so that no later change is missed.
    let cursor = state.cursor().to_string();
    let row = session.row();
    let tasks = session.list();
    let alive_tasks = tasks.iter().filter(|task| task.row.is_alive()).count();
    SessionBody {
        id: row.id.to_string(),
        name: row.name.to_string(),
        state: match row.state {
            SessionState::Open => "open".to_owned(),
            SessionState::Closing => "closing".to_owned(),
            SessionState::Closed => "closed".to_owned(),
        },
        opened_at: row.opened_at.into(),
        alive_tasks,
        uncollected_tasks: tasks.len() - alive_tasks,
        usage: row.usage.into(),
        limits: (!row.limits.is_empty()).then(|| LimitsBody::of(&row.limits)),
        node: placements.node_of(row.id),
        required_labels: placements.labels_of(row.id),
        cursor,
    }
}

/// Returns the name of the session of a directory.
async fn find_workspace(directory: String) -> Result<String, Refusal> {
    session_name_of(&find_directory(directory).await?)
}

/// Returns the directory, or refuses one outside of the session's workspace to a client.
async fn restrict_workspace(caller: &HttpCaller, directory: String) -> Result<String, Refusal> {
    match caller.token.access {
        TokenAccess::Client { session } if Path::new(&directory).is_absolute() => {
            let session = caller.session_of(session).await?;
            WorkspaceScope::of(&session).restrict(directory).await
        }
        _ => Ok(directory),
    }
}
