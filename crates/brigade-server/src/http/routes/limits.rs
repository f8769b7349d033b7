//! `/v1/tasks/{task}/usage` and `limits`.

use axum::extract::State;
use brigade_protocol::http::{LimitsBody, RemainingBody, TaskId, TaskLimitsBody, TaskUsageBody};

use super::HttpState;
use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, JsonBody};
use crate::http::problem::Problem;
use crate::http::task_view::list_inherited;

/// Show the usage of a task and its descendants
#[utoipa::path(
    get, path = "/v1/tasks/{task}/usage", tag = "tasks", params(("task" = TaskId, Path)),
    responses((status = 200, description = "The usage", body = TaskUsageBody), Problem)
)]
pub(super) async fn show_usage(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
) -> Result<JsonBody<TaskUsageBody>, Problem> {
    let found = caller.task(id).await?;
    let now = state.daemon.runtime.clock().now();
    Ok(JsonBody(TaskUsageBody {
        own: found.row.own_usage().into(),
        subtree: found.row.usage().into(),
        unknown: found.row.unknown_usage().into(),
        remaining: RemainingBody::of_task(&found.row, now),
    }))
}

/// Show the limits that apply to a task, and what remains of them
#[utoipa::path(
    get, path = "/v1/tasks/{task}/limits", tag = "tasks", params(("task" = TaskId, Path)),
    responses((status = 200, description = "The limits", body = TaskLimitsBody), Problem)
)]
pub(super) async fn show_limits(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
) -> Result<JsonBody<TaskLimitsBody>, Problem> {
    Ok(JsonBody(read_limits(&state, &caller, id).await?))
}

/// Set the limits of a task and its descendants, in place of its earlier ones
#[utoipa::path(
    put, path = "/v1/tasks/{task}/limits", tag = "tasks", request_body = LimitsBody,
    params(("task" = TaskId, Path)),
    responses((status = 200, description = "The limits", body = TaskLimitsBody), Problem)
)]
pub(super) async fn set_limits(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
    JsonBody(limits): JsonBody<LimitsBody>,
) -> Result<JsonBody<TaskLimitsBody>, Problem> {
    let found = caller.task(id).await?;
    caller.require_operator("change limits")?;
    found.session.set_task_limits(found.no, limits.parse()?).await?;
    Ok(JsonBody(read_limits(&state, &caller, id).await?))
}

async fn read_limits(
    state: &HttpState,
    caller: &HttpCaller,
    id: TaskId,
) -> Result<TaskLimitsBody, Problem> {
    let found = caller.task(id).await?;
    let now = state.daemon.runtime.clock().now();
    Ok(TaskLimitsBody {
        limits: found.row.limits.as_deref().map(LimitsBody::of).unwrap_or_default(),
        remaining: RemainingBody::of_task(&found.row, now),
        inherited: list_inherited(caller.reader(), &found, now).await?,
    })
}
