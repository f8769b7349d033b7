//! `POST /v1/sessions/{session}/wait`: waits for tasks.

use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use brigade_model::refusal::Refusal;
use brigade_protocol::http::wait::{WaitRequestBody, WaitResultBody};
use brigade_protocol::http::{EndedTaskBody, TaskBody};
use brigade_protocol::requests::WaitRequest;
use http::request::Parts;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{HttpState, task_session};
use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, ApiQuery, JsonBody};
use crate::http::problem::Problem;
use crate::http::request_headers::PreferWait;
use crate::http::task_view::pending_approval;
use crate::request_context::RequestContext;
use crate::requests::wait::{self, FinishedWait, WaitedTask};

const WAIT_DEFAULT: Duration = Duration::from_secs(30);
const TASKS_MAX: usize = 1_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitQuery {
    /// Collects the results with an operator's token too. A client's wait always collects.
    collect: bool,
}

/// The query and the headers of a wait.
#[derive(Debug)]
pub(super) struct WaitTerms {
    timeout: Duration,
    collect: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for WaitTerms {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let ApiQuery(query): ApiQuery<WaitQuery> =
            ApiQuery::from_request_parts(parts, state).await?;
        let PreferWait(timeout) = PreferWait::from_request_parts(parts, state).await?;
        Ok(Self { timeout: timeout.unwrap_or(WAIT_DEFAULT), collect: query.collect })
    }
}

/// Wait until any or all of some tasks have ended, or are ready
///
/// `Prefer: wait=SECONDS` is the timeout, from 0 to 600; 30 by default. A wait that times out answers
/// with `done: false`, and collects nothing.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/wait", tag = "tasks", request_body = WaitRequestBody,
    params(("session" = String, Path), ("prefer" = Option<String>, Header), WaitQuery),
    responses((status = 200, description = "The tasks", body = WaitResultBody), Problem)
)]
pub(super) async fn wait_for_tasks(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<String>,
    terms: WaitTerms,
    JsonBody(request): JsonBody<WaitRequestBody>,
) -> Result<JsonBody<WaitResultBody>, Problem> {
    let session = caller.session(&id).await?;
    if !(1..=TASKS_MAX).contains(&request.tasks.len()) {
        return Err(Refusal::invalid(format!("name 1 to {TASKS_MAX} tasks")).into());
    }
    if request.tasks.iter().any(|task| task.session != session.id()) {
        return Err(Refusal::invalid("all tasks of one wait must be of its session").into());
    }
    let wait = WaitRequest {
        session: String::new(),
        tasks: request.tasks.iter().map(|task| task.no.to_string()).collect(),
        mode: request.mode.into(),
        timeout_ms: Some(u64::try_from(terms.timeout.as_millis()).unwrap_or(u64::MAX)),
        until: request.until.into(),
    };
    let context: RequestContext = match terms.collect {
        true => caller.collector()?,
        false => caller.reader().clone(),
    };
    let context = context.in_session(session.id());
    let finished = state.until_shutdown(wait::wait_for_tasks(&wait, &context)).await?;
    Ok(JsonBody(new_result(finished)))
}

fn new_result(finished: FinishedWait) -> WaitResultBody {
    let session = task_session(&finished.session);
    let ended = finished.ended.into_iter().map(|task| {
        let WaitedTask { no, row, info } = task;
        EndedTaskBody::of(&session, no, &row, info)
    });
    let running = finished.still_running.into_iter().map(|task| {
        let WaitedTask { no, row, info } = task;
        TaskBody::from_info(&session, no, &row, info)
    });
    let ready = finished.ready.into_iter().map(|task| {
        let WaitedTask { no, row, info } = task;
        TaskBody::from_info(&session, no, &row, info)
    });
    let approvals = finished.pending_approvals.into_iter();
    WaitResultBody {
        done: !finished.timed_out,
        ended: ended.collect(),
        running: running.collect(),
        ready: ready.collect(),
        pending_approvals: approvals.map(|one| pending_approval(&session, one)).collect(),
    }
}
