//! `/v1/tasks/{task}/stop`, `resume` and `answer`.

use brigade_protocol::http::{
    AnswerBody, LimitsBody, ResumeRequestBody, StopRequestBody, StoppedBody, TaskBody, TaskId,
};
use brigade_protocol::requests::{AnswerRequest, ResumeRequest, StopReply, StopRequest};
use http::StatusCode;

use super::task_session;
use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, JsonBody, OptionalJson};
use crate::http::path_target::target_of;
use crate::http::problem::Problem;

/// Stop a task and its descendants
///
/// The answer is sent when the stop has begun.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/stop", tag = "tasks", request_body = Option<StopRequestBody>,
    params(("task" = TaskId, Path)),
    responses((status = 200, description = "The task", body = StoppedBody), Problem)
)]
pub(super) async fn stop_task(
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
    OptionalJson(request): OptionalJson<StopRequestBody>,
) -> Result<JsonBody<StoppedBody>, Problem> {
    let StopRequestBody { reason, grace_ms } = request;
    let context = caller.writer_of(id).await?;
    let stop = StopRequest { target: target_of(id.no), reason, grace_ms };
    let StopReply { task_count, already, .. } = context.call(stop).await?;
    Ok(JsonBody(StoppedBody { task: show(&caller, id).await?, task_count, already }))
}

/// Start the next run of an ended task
#[utoipa::path(
    post, path = "/v1/tasks/{task}/resume", tag = "tasks", request_body = Option<ResumeRequestBody>,
    params(("task" = TaskId, Path)),
    responses((status = 200, description = "The task", body = TaskBody), Problem)
)]
pub(super) async fn resume_task(
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
    OptionalJson(request): OptionalJson<ResumeRequestBody>,
) -> Result<JsonBody<TaskBody>, Problem> {
    let context = caller.writer_of(id).await?;
    let limits = request.limits.as_ref().map(LimitsBody::parse).transpose()?;
    context.call(ResumeRequest { target: target_of(id.no), limits }).await?;
    Ok(JsonBody(show(&caller, id).await?))
}

/// Answer a question of a task, or return the result of a client tool
#[utoipa::path(
    post, path = "/v1/tasks/{task}/answer", tag = "tasks", request_body = AnswerBody,
    params(("task" = TaskId, Path)),
    responses((status = 204, description = "The task has the answer"), Problem)
)]
pub(super) async fn answer_question(
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
    JsonBody(request): JsonBody<AnswerBody>,
) -> Result<StatusCode, Problem> {
    let AnswerBody { call, answer } = request;
    let context = caller.writer_of(id).await?;
    context.call(AnswerRequest { target: target_of(id.no), answer, question: call }).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn show(caller: &HttpCaller, id: TaskId) -> Result<TaskBody, Problem> {
    let found = caller.task(id).await?;
    Ok(TaskBody::whole(&task_session(&found.session), found.no, &found.row))
}
