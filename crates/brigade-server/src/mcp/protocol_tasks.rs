//! Runs as tasks of the protocol, for clients that know them.
//!
//! Such a task is a row in the daemon's store before its handle is returned, and its id is its address
//! with the session. Nothing about it is kept here: any bridge answers for it, also after everything
//! was killed.

use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::json::Json;
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::refusal::{Refusal, RefusalKind};
use rmcp::model::{
    CallToolResult, ContentBlock, DetailedTask, ElicitRequest, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationSchema, ErrorCode, InputRequest, InputRequests, InputResponses,
    JsonObject, NotificationMetaObject, PrimitiveSchemaDefinition, RequestId, ServerNotification,
    StringSchema, Task, TaskPayload, TaskStatus, TaskStatusNotification,
    TaskStatusNotificationParams,
};
use rmcp::service::{Peer, RoleServer};
use serde_json::{Value, json};

use brigade_delegation::BackgroundReason;

use super::run_process::{background_reply, ended_reply};
use super::summary::summarize_task;
use super::tool_call::{McpCallContext, McpToolReply};
use super::{approval_forms, task_text};
use crate::requests::{PendingApprovalItem, StartReply, StopRequest};
use crate::task_info::{QuestionInfo, TaskInfo};

/// A run that ends as fast as this is answered without a task.
pub(super) const IMMEDIATE_REPLY_TIMEOUT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The field of a form that asks a question.
const ANSWER_FIELD: &str = "answer";
const DECLINED_ANSWER: &str = "The question was declined: there is no answer. Decide as you see fit, or end \
    with what you have.";

/// What is known of a task as soon as it exists.
pub(super) fn new_protocol_task(call: &McpCallContext, info: &TaskInfo) -> Task {
    let id = format!("{}/{}", info.session, info.address);
    let updated = info.ended_at.unwrap_or(info.last_activity_at);
    let status = if info.alive { TaskStatus::Working } else { TaskStatus::Completed };
    let task = Task::new(
        id,
        status,
        task_text::render_timestamp(info.spawned_at),
        task_text::render_timestamp(updated),
    );
    let mut task = task.with_poll_interval_ms(POLL_INTERVAL.as_millis() as u64);
    // None is unlimited: kept until somebody prunes.
    task.ttl_ms = call.options.retention.map(|kept| kept.as_millis() as u64);
    task
}

/// As it is now. A result that nobody took is taken by this.
pub(super) async fn get_task(call: &McpCallContext, id: &str) -> Result<DetailedTask, Refusal> {
    let mut info = call.show_task(id).await?;
    if !info.alive && !info.collected {
        let taken =
            call.wait_for_tasks(&[id.to_owned()], WaitMode::All, IMMEDIATE_REPLY_TIMEOUT).await?;
        info = taken.ended.into_iter().next().unwrap_or(info);
    }
    detailed_task(call, &info).await
}

pub(super) async fn cancel_task(call: &McpCallContext, id: &str) -> Result<(), Refusal> {
    let question = || StopRequest {
        target: call.target(id),
        reason: Some("cancelled by the client".to_owned()),
        grace_ms: None,
    };
    call.daemon.call(question).await.map(|_| ())
}

/// Takes what the client answers. What is not asked, or no longer, is passed over.
pub(super) async fn update_task(
    call: &McpCallContext,
    id: &str,
    responses: InputResponses,
) -> Result<(), Refusal> {
    let info = call.show_task(id).await?;
    approval_forms::apply_responses(call, &info, &responses).await?;
    for question in info.questions.iter().filter(|question| is_for_client(question)) {
        let Some(response) = responses.get(&question_key(question)) else { continue };
        let answer = Json::of(&parse_answer(response)?)?;
        match call.answer_question(id, question.call, &answer).await {
            Err(refusal) if refusal.kind == RefusalKind::NotFound => {}
            answered => answered?,
        }
    }
    Ok(())
}

/// Numbers of questions grow over all runs of a task.
fn question_key(question: &QuestionInfo) -> String {
    format!("question-{}", question.call)
}

/// Whether the program on the other side is to do something. Any other question is for its model, which
/// no form reaches.
fn is_for_client(question: &QuestionInfo) -> bool {
    question.client_call.is_some()
}

/// Each tool that the client is to run, as a form with one field, and each call that waits for leave.
fn build_input_requests(
    call: &McpCallContext,
    info: &TaskInfo,
    pending: &[PendingApprovalItem],
) -> InputRequests {
    let who = info.name.clone().unwrap_or_else(|| call.address(info));
    let for_client = info.questions.iter().filter(|question| is_for_client(question));
    let requests = for_client.map(|question| {
        let field = PrimitiveSchemaDefinition::String(StringSchema::new().title("Answer"));
        let schema = ElicitationSchema::new([(ANSWER_FIELD.to_owned(), field)].into());
        let form = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: format!("{who} {}: {}", question.verb(), question.text),
            requested_schema: schema.with_required(vec![ANSWER_FIELD.to_owned()]),
        };
        (question_key(question), InputRequest::Elicitation(ElicitRequest::new(form)))
    });
    let leave =
        pending.iter().map(|one| (approval_forms::form_key(one), approval_forms::build_form(one)));
    requests.chain(leave).collect()
}

/// What the agent hears.
fn parse_answer(response: &Value) -> Result<String, Refusal> {
    let result: ElicitResult = serde_json::from_value(response.clone()).map_err(|error| {
        Refusal::invalid(format!(
            "that does not answer a form: {error}; action is missing or wrong"
        ))
    })?;
    match (result.action, result.content) {
        (ElicitationAction::Accept, Some(content)) => Ok(match content.get(ANSWER_FIELD) {
            Some(Value::String(text)) => text.clone(),
            _ => content.to_string(),
        }),
        (ElicitationAction::Accept, None) => {
            Err(Refusal::invalid("that accepts the form and has no content"))
        }
        // It goes on without: an agent that is left to wait would do so for ever.
        _ => Ok(DECLINED_ANSWER.to_owned()),
    }
}

/// Tells the client of each change of status until the task has ended. Within a subscription it
/// begins with how things are.
pub(super) async fn watch_status(
    call: McpCallContext,
    id: String,
    peer: Peer<RoleServer>,
    within: Option<RequestId>,
) {
    let mut told = if within.is_some() { String::new() } else { WORKING_STATUS.to_owned() };
    loop {
        let Ok(info) = call.show_task(&id).await else { return };
        let Ok(pending) = approval_forms::pending_approvals(&call, &info).await else { return };
        let open = info
            .questions
            .iter()
            .map(question_key)
            .chain(pending.iter().map(approval_forms::form_key));
        let now = match open.collect::<Vec<_>>().join(" ") {
            none if none.is_empty() && info.alive && within.is_none() => WORKING_STATUS.to_owned(),
            none if none.is_empty() => info.state.clone(),
            open => open,
        };
        if now != told {
            told = now;
            let Ok(task) = detailed_task(&call, &info).await else { return };
            let told = peer.send_notification(status_notification(task, within.clone())).await;
            if told.is_err() || !info.alive || asks_model(&info, &pending) {
                return;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = call.disconnected.cancelled() => return,
            () = call.cancelled.cancelled(), if within.is_some() => return,
        }
    }
}

/// What a client knows of a task whose handle it has.
const WORKING_STATUS: &str = "working";

fn status_notification(task: DetailedTask, within: Option<RequestId>) -> ServerNotification {
    let mut told = TaskStatusNotification::new(TaskStatusNotificationParams::new(task));
    if let Some(within) = within {
        let mut meta = NotificationMetaObject::new();
        meta.set_subscription_id(within);
        told.extensions.insert(meta);
    }
    ServerNotification::TaskStatusNotification(told)
}

async fn detailed_task(call: &McpCallContext, info: &TaskInfo) -> Result<DetailedTask, Refusal> {
    let mut task = new_protocol_task(call, info);
    let pending = approval_forms::pending_approvals(call, info).await?;
    let payload = match &info.outcome {
        None if asks_model(info, &pending) => {
            let started = StartReply { task: info.clone(), existed: false };
            let answer = background_reply(call, &started, BackgroundReason::InputRequired).await?;
            let result = serde_json::to_value(to_tool_result(answer)).unwrap_or_default();
            TaskPayload::Completed { result: into_object(result) }
        }
        None if !info.questions.is_empty() || !pending.is_empty() => TaskPayload::InputRequired {
            input_requests: build_input_requests(call, info, &pending),
        },
        None => TaskPayload::Working,
        Some(Outcome::Cancelled(_)) => TaskPayload::Cancelled,
        Some(Outcome::Failed(failed)) if !is_tool_result(&failed.failure) => {
            let message = summarize_task(call, info).headline();
            let error = json!({ "code": ErrorCode::INTERNAL_ERROR, "message": message });
            TaskPayload::Failed { error: into_object(error) }
        }
        Some(Outcome::Succeeded { .. } | Outcome::Failed(_)) => {
            let answer = ended_reply(call, info).await?;
            let result = serde_json::to_value(to_tool_result(answer)).unwrap_or_default();
            TaskPayload::Completed { result: into_object(result) }
        }
    };
    task.status_message = Some(match payload {
        TaskPayload::InputRequired { .. } => {
            // The forms show pending approvals, here and of all descendants.
            let mut told = summarize_task(call, info);
            told.agent.iter_mut().for_each(|agent| agent.approvals.clear());
            let approvals = pending.iter().map(approval_forms::render_form_message);
            told.guidance().into_iter().chain(approvals).collect::<Vec<_>>().join("\n")
        }
        TaskPayload::Working => match task_text::render_status_line(call, info).await {
            Some(line) => format!("{}: {line}", info.state),
            None => info.state.clone(),
        },
        _ => summarize_task(call, info).headline(),
    });
    Ok(DetailedTask::new(task, payload))
}

/// Whether nothing but the model that started it can help it on. Then its task of the protocol is over
/// with the question as the result: that is how the model gets to read it.
fn asks_model(info: &TaskInfo, pending: &[PendingApprovalItem]) -> bool {
    pending.is_empty() && !info.questions.is_empty() && !info.questions.iter().any(is_for_client)
}

/// Whether the command had its say, as against something that befell it.
fn is_tool_result(failure: &Failure) -> bool {
    match failure {
        Failure::ExitCode(_)
        | Failure::Signal(_)
        | Failure::Timeout { .. }
        | Failure::Stalled { .. }
        | Failure::Budget { .. }
        | Failure::MaxSteps { .. }
        | Failure::Loop { .. }
        | Failure::Errors { .. } => true,
        Failure::Error(_)
        | Failure::Panic(_)
        | Failure::CrashLoop { .. }
        | Failure::Lost { .. } => false,
    }
}

/// An answer as the protocol has it.
pub(super) fn to_tool_result(answer: McpToolReply) -> CallToolResult {
    match answer {
        McpToolReply::Reply(reply) => {
            let mut result = CallToolResult::success(vec![ContentBlock::text(reply.text())]);
            result.structured_content = Some(reply.structured_content());
            result
        }
        McpToolReply::Task(info) => CallToolResult::success(vec![ContentBlock::text(info.address)]),
    }
}

fn into_object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}
