//! `/v1/tasks`, `/v1/sessions/{session}/tasks`: the tasks that the caller sees.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use brigade_model::call::WaitMode;
use brigade_model::ids::RunNo;
use brigade_model::task_tree::SessionState;
use brigade_protocol::http::task::TaskSession;
use brigade_protocol::http::{SubtreeBody, TaskBody, TaskDetailBody, TaskId, TaskListBody};
use brigade_runtime::Session;
use http::HeaderValue;
use http::header::LINK;
use serde::Deserialize;

use super::HttpState;
use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, ApiQuery, JsonBody};
use crate::http::problem::Problem;
use crate::http::request_headers::PreferWait;
use crate::http::task_pages::{TaskFilter, TaskPages};
use crate::http::task_view::describe_whole;
use crate::requests::list_subtree::{SUBTREE_TASKS_MAX, find_subtree};

/// List tasks of all sessions
///
/// An ended task is listed while its result waits for the client that started it, or for a parent
/// that is alive. `ended=true`, or an ended state in `state`, lists all of them.
#[utoipa::path(
    get, path = "/v1/tasks", tag = "tasks", params(TaskFilter),
    responses((status = 200, description = "A page of tasks", body = TaskListBody), Problem)
)]
pub(super) async fn list_tasks(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiQuery(filter): ApiQuery<TaskFilter>,
) -> Result<Response, Problem> {
    let mut sessions = match &filter.session {
        Some(id) => vec![caller.session(id).await?],
        None => caller.sessions().await?,
    };
    if filter.includes_ended() && filter.session.is_none() {
        sessions.extend(caller.closed_sessions().await?);
    }
    list_page(&state, sessions, &filter, "/v1/tasks").await
}

/// List tasks of a session
#[utoipa::path(
    get, path = "/v1/sessions/{session}/tasks", tag = "tasks",
    params(("session" = String, Path), TaskFilter),
    responses((status = 200, description = "A page of tasks", body = TaskListBody), Problem)
)]
pub(super) async fn list_session_tasks(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<String>,
    ApiQuery(filter): ApiQuery<TaskFilter>,
) -> Result<Response, Problem> {
    let session = caller.session(&id).await?;
    let path = format!("/v1/sessions/{}/tasks", session.id());
    list_page(&state, vec![session], &filter, &path).await
}

async fn list_page(
    state: &HttpState,
    sessions: Vec<Session>,
    filter: &TaskFilter,
    path: &str,
) -> Result<Response, Problem> {
    // The cursor is read first, so that a client that follows it misses no change.
    let cursor = state.cursor().to_string();
    let page = TaskPages::new(sessions, filter)?.read().await?;
    let link = page.next.as_ref().map(|next| filter.next_link(path, next));
    let body = TaskListBody { items: page.items, next_page: page.next, cursor };
    let mut response = JsonBody(body).into_response();
    if let Some(link) = link.and_then(|link| HeaderValue::from_str(&link).ok()) {
        response.headers_mut().insert(LINK, link);
    }
    Ok(response)
}

/// Show a task with all details
///
/// `Prefer: wait=SECONDS` waits for its end first, and collects nothing.
#[utoipa::path(
    get, path = "/v1/tasks/{task}", tag = "tasks",
    params(("task" = TaskId, Path), ("prefer" = Option<String>, Header)),
    responses((status = 200, description = "The task", body = TaskDetailBody), Problem)
)]
pub(super) async fn show_task(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
    PreferWait(wait): PreferWait,
) -> Result<JsonBody<TaskDetailBody>, Problem> {
    let mut found = caller.task(id).await?;
    if let Some(wait) = wait.filter(|_| found.row.is_alive()) {
        // The operator's view collects nothing.
        let view = state.daemon.runtime.operator_session(id.session).await?;
        state.until_shutdown(view.wait_within(vec![id.no.into()], WaitMode::Any, wait)).await?;
        found = caller.task(id).await?;
    }
    Ok(JsonBody(describe_whole(&state, caller.reader(), &found).await?))
}

/// Show a run of a task
#[utoipa::path(
    get, path = "/v1/tasks/{task}/runs/{run}", tag = "tasks",
    params(("task" = TaskId, Path), ("run" = u32, Path)),
    responses((status = 200, description = "The run", body = TaskDetailBody), Problem)
)]
pub(super) async fn show_run(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(path): ApiPath<RunPath>,
) -> Result<JsonBody<TaskDetailBody>, Problem> {
    let found = caller.run(path.task, RunNo(path.run)).await?;
    Ok(JsonBody(describe_whole(&state, caller.reader(), &found).await?))
}

#[derive(Debug, Deserialize)]
pub(super) struct RunPath {
    task: TaskId,
    run: u32,
}

/// List a task and its descendants
#[utoipa::path(
    get, path = "/v1/tasks/{task}/subtree", tag = "tasks", params(("task" = TaskId, Path)),
    responses((status = 200, description = "The tasks", body = SubtreeBody), Problem)
)]
pub(super) async fn show_subtree(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
) -> Result<JsonBody<SubtreeBody>, Problem> {
    let cursor = state.cursor().to_string();
    let found = caller.task(id).await?;
    let session = task_session(&found.session);
    let tasks = find_subtree(&found).await?;
    let truncated = tasks.len() == SUBTREE_TASKS_MAX;
    let items = tasks.iter().map(|task| TaskBody::of(&session, task.no, &task.row)).collect();
    Ok(JsonBody(SubtreeBody { items, truncated, cursor }))
}

pub(crate) fn task_session(session: &Session) -> TaskSession {
    let row = session.row();
    let is_open = row.state == SessionState::Open;
    TaskSession { id: row.id, name: row.name, is_open }
}
