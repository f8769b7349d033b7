//! `/v1/pending`, `/v1/tasks/{task}/approvals/{call}`, `/v1/grants`: what a person decides.

use axum::extract::State;
use brigade_model::approval::CallDigest;
use brigade_model::refusal::Refusal;
use brigade_model::task::StoredTask;
use brigade_protocol::http::approval::PendingQuestionBody;
use brigade_protocol::http::{
    GrantBody, GrantListBody, PendingBody, TaskBody, TaskId, VerdictBody, VerdictKind,
};
use brigade_protocol::requests::{ApproveRequest, RevokeGrantRequest};
use brigade_runtime::Session;
use http::StatusCode;
use serde::Deserialize;

use super::{HttpState, task_session};
use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, JsonBody};
use crate::http::path_target::target_of;
use crate::http::problem::Problem;
use crate::http::task_view::pending_approval;

/// List pending approvals and open questions
///
/// The operator sees all. A client sees the approvals that it may decide, and the questions of the
/// tasks that it sees.
#[utoipa::path(
    get, path = "/v1/pending", tag = "approvals",
    responses((status = 200, description = "All that waits for a person", body = PendingBody), Problem)
)]
pub(super) async fn list_pending(
    State(state): State<HttpState>,
    caller: HttpCaller,
) -> Result<JsonBody<PendingBody>, Problem> {
    let cursor = state.cursor().to_string();
    let mut pending = PendingBody { cursor, ..PendingBody::default() };
    for session in caller.sessions().await? {
        let names = task_session(&session);
        let approvals = session.approvals().into_iter();
        pending.approvals.extend(approvals.map(|approval| pending_approval(&names, approval)));
        pending.questions.extend(list_questions(&session));
    }
    Ok(JsonBody(pending))
}

fn list_questions(session: &Session) -> Vec<PendingQuestionBody> {
    let names = task_session(session);
    let mut questions = Vec::new();
    for StoredTask { no, row } in session.list() {
        if row.parked_calls.is_empty() || !row.is_alive() {
            continue;
        }
        let task = TaskBody::of(&names, no, &row);
        questions.extend(task.questions.into_iter().map(|question| PendingQuestionBody {
            task: task.id,
            session: task.session.clone(),
            session_name: task.session_name.clone(),
            address: task.address.clone(),
            name: task.name.clone(),
            question,
        }));
    }
    questions
}

#[derive(Debug, Deserialize)]
pub(super) struct ApprovalPath {
    task: TaskId,
    call: u32,
}

/// Allow or deny a tool call
///
/// A client decides the calls of tasks that it started and of their descendants.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/approvals/{call}", tag = "approvals",
    params(("task" = TaskId, Path), ("call" = u32, Path)), request_body = VerdictBody,
    responses((status = 204, description = "The call is decided"), Problem)
)]
pub(super) async fn decide_approval(
    caller: HttpCaller,
    ApiPath(path): ApiPath<ApprovalPath>,
    JsonBody(request): JsonBody<VerdictBody>,
) -> Result<StatusCode, Problem> {
    let context = caller.writer_of(path.task).await?;
    let verdict = request.parse()?;
    let digest = request.digest.as_deref().map(str::parse::<CallDigest>).transpose()?;
    if digest.is_none() && request.verdict != VerdictKind::Deny {
        let text = "pass the `digest` of the approval, so that exactly the call that was shown is \
                    allowed";
        return Err(Refusal::invalid(text).into());
    }
    let target = target_of(path.task.no);
    context.call(ApproveRequest { target, call: Some(path.call), digest, verdict }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List grants: calls that are always allowed
#[utoipa::path(
    get, path = "/v1/grants", tag = "approvals",
    responses((status = 200, description = "The grants", body = GrantListBody), Problem)
)]
pub(super) async fn list_grants(caller: HttpCaller) -> Result<JsonBody<GrantListBody>, Problem> {
    let mut items = Vec::new();
    for session in caller.sessions().await? {
        let names = task_session(&session);
        items.extend(session.grants().into_iter().map(|grant| GrantBody::of(&names, grant)));
    }
    Ok(JsonBody(GrantListBody { items }))
}

#[derive(Debug, Deserialize)]
pub(super) struct GrantPath {
    session: String,
    number: u32,
}

/// Revoke a grant
#[utoipa::path(
    delete, path = "/v1/sessions/{session}/grants/{number}", tag = "approvals",
    params(("session" = String, Path), ("number" = u32, Path)),
    responses((status = 204, description = "The grant is revoked"), Problem)
)]
pub(super) async fn revoke_grant(
    caller: HttpCaller,
    ApiPath(path): ApiPath<GrantPath>,
) -> Result<StatusCode, Problem> {
    let context = caller.writer()?;
    let session = caller.session(&path.session).await?;
    let request = RevokeGrantRequest { session: String::new(), grant: path.number };
    context.in_session(session.id()).call(request).await?;
    Ok(StatusCode::NO_CONTENT)
}
