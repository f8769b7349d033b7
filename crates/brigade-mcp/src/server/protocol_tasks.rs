//! Runs as tasks of the protocol, for clients that support them.
//!
//! The daemon has stored such a task before the client gets its handle. Its id is its address with
//! the session. This server stores nothing about it, so that any later one can answer for it.

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
use brigade_protocol::RequestClient;
use brigade_protocol::requests::{PendingApprovalItem, StartReply, StopRequest};
use brigade_protocol::task_info::{QuestionInfo, TaskInfo};

/// The time within which an ended run is returned as a result, not as a task.
pub(super) const IMMEDIATE_REPLY_TIMEOUT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The field of a form for a client tool.
const ANSWER_FIELD: &str = "answer";
const DECLINED_ANSWER: &str = "The question was declined: there is no answer. Decide as you see fit, or end \
    with what you have.";

/// Returns the protocol's description of a task.
pub(super) fn new_protocol_task<C: RequestClient>(
    call: &McpCallContext<C>,
    info: &TaskInfo,
) -> Task {
    let id = protocol_task_id(info);
    let updated = info.ended_at.unwrap_or(info.last_activity_at);
    let status = if info.alive { TaskStatus::Working } else { TaskStatus::Completed };
    let task = Task::new(
        id,
        status,
        task_text::render_timestamp(info.spawned_at),
        task_text::render_timestamp(updated),
    );
    let mut task = task.with_poll_interval_ms(POLL_INTERVAL.as_millis() as u64);
    // `None` is unlimited: the task stays until a user prunes it.
    task.ttl_ms = call.options.retention.map(|retention| retention.as_millis() as u64);
    task
}

/// Returns the id of a task in the protocol: its address with the session.
pub(super) fn protocol_task_id(info: &TaskInfo) -> String {
    format!("{}/{}", info.session, info.address)
}

/// Returns the current state of a task, and collects its result.
pub(super) async fn get_task<C: RequestClient>(
    call: &McpCallContext<C>,
    id: &str,
) -> Result<DetailedTask, Refusal> {
    let mut info = call.show_task(id).await?;
    if !info.alive && !info.collected {
        let waited =
            call.wait_for_tasks(&[id.to_owned()], WaitMode::All, IMMEDIATE_REPLY_TIMEOUT).await?;
        info = waited.ended.into_iter().next().unwrap_or(info);
    }
    detailed_task(call, &info).await
}

pub(super) async fn cancel_task<C: RequestClient>(
    call: &McpCallContext<C>,
    id: &str,
) -> Result<(), Refusal> {
    let stop = || StopRequest {
        target: call.target(id),
        reason: Some("cancelled by the client".to_owned()),
        grace_ms: None,
    };
    call.request_client.call(stop).await.map(|_| ())
}

/// Applies the client's responses to forms. Ignores keys that are not open.
pub(super) async fn update_task<C: RequestClient>(
    call: &McpCallContext<C>,
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

/// Returns the key of a question's form. Numbers of questions grow over all runs of a task.
fn question_key(question: &QuestionInfo) -> String {
    format!("question-{}", question.call)
}

/// Returns true for a tool call that the client must execute. Other questions are for its model,
/// which sees no forms.
fn is_for_client(question: &QuestionInfo) -> bool {
    question.client_call.is_some()
}

/// Returns a form for each client tool call and for each pending approval.
fn build_input_requests<C: RequestClient>(
    call: &McpCallContext<C>,
    info: &TaskInfo,
    pending: &[PendingApprovalItem],
) -> InputRequests {
    let label = info.name.clone().unwrap_or_else(|| call.address(info));
    let for_client = info.questions.iter().filter(|question| is_for_client(question));
    let requests = for_client.map(|question| {
        let field = PrimitiveSchemaDefinition::String(StringSchema::new().title("Answer"));
        let schema = ElicitationSchema::new([(ANSWER_FIELD.to_owned(), field)].into());
        let form = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: format!("{label} {}: {}", question.verb(), question.text),
            requested_schema: schema.with_required(vec![ANSWER_FIELD.to_owned()]),
        };
        (question_key(question), InputRequest::Elicitation(ElicitRequest::new(form)))
    });
    let approvals =
        pending.iter().map(|one| (approval_forms::form_key(one), approval_forms::build_form(one)));
    requests.chain(approvals).collect()
}

/// Returns the answer that the agent gets.
fn parse_answer(response: &Value) -> Result<String, Refusal> {
    let result = parse_elicit_result(response)?;
    match (result.action, result.content) {
        (ElicitationAction::Accept, Some(content)) => Ok(match content.get(ANSWER_FIELD) {
            Some(Value::String(text)) => text.clone(),
            _ => content.to_string(),
        }),
        (ElicitationAction::Accept, None) => {
            Err(Refusal::invalid("the response accepts the form and has no content"))
        }
        // The agent continues without an answer. Otherwise it would wait forever.
        _ => Ok(DECLINED_ANSWER.to_owned()),
    }
}

/// Parses the response to a form.
pub(super) fn parse_elicit_result(response: &Value) -> Result<ElicitResult, Refusal> {
    serde_json::from_value(response.clone()).map_err(|error| {
        Refusal::invalid(format!("not a response to a form: {error}; action is missing or wrong"))
    })
}

/// Notifies the client of each change of status until the task has ended. A subscription starts
/// with the current status.
pub(super) async fn watch_status<C: RequestClient>(
    call: McpCallContext<C>,
    id: String,
    peer: Peer<RoleServer>,
    subscription_id: Option<RequestId>,
) {
    let is_subscribed = subscription_id.is_some();
    let mut sent = if is_subscribed { String::new() } else { WORKING_STATUS.to_owned() };
    loop {
        let Ok(info) = call.show_task(&id).await else { return };
        let Ok(pending) = approval_forms::pending_approvals(&call, &info).await else { return };
        let open = info
            .questions
            .iter()
            .map(question_key)
            .chain(pending.iter().map(approval_forms::form_key));
        let now = match open.collect::<Vec<_>>().join(" ") {
            none if none.is_empty() && info.alive && !is_subscribed => WORKING_STATUS.to_owned(),
            none if none.is_empty() => info.state.clone(),
            open => open,
        };
        if now != sent {
            sent = now;
            let Ok(task) = detailed_task(&call, &info).await else { return };
            let notification = status_notification(task, subscription_id.clone());
            let result = peer.send_notification(notification).await;
            if result.is_err() || !info.alive || asks_model(&info, &pending) {
                return;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = call.disconnected.cancelled() => return,
            () = call.cancelled.cancelled(), if is_subscribed => return,
        }
    }
}

/// The status that a client knows from the handle of a task.
const WORKING_STATUS: &str = "working";

fn status_notification(
    task: DetailedTask,
    subscription_id: Option<RequestId>,
) -> ServerNotification {
    let mut notification = TaskStatusNotification::new(TaskStatusNotificationParams::new(task));
    if let Some(id) = subscription_id {
        let mut meta = NotificationMetaObject::new();
        meta.set_subscription_id(id);
        notification.extensions.insert(meta);
    }
    ServerNotification::TaskStatusNotification(notification)
}

async fn detailed_task<C: RequestClient>(
    call: &McpCallContext<C>,
    info: &TaskInfo,
) -> Result<DetailedTask, Refusal> {
    let mut task = new_protocol_task(call, info);
    let pending = approval_forms::pending_approvals(call, info).await?;
    let payload = match &info.outcome {
        None if asks_model(info, &pending) => {
            let started = StartReply { task: info.clone(), existed: false };
            let reply = background_reply(call, &started, BackgroundReason::InputRequired).await?;
            let result = serde_json::to_value(to_tool_result(reply)).unwrap_or_default();
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
            let reply = ended_reply(call, info).await?;
            let result = serde_json::to_value(to_tool_result(reply)).unwrap_or_default();
            TaskPayload::Completed { result: into_object(result) }
        }
    };
    task.status_message = Some(match payload {
        TaskPayload::InputRequired { .. } => {
            // The forms show the pending approvals of the task and its descendants.
            let mut summary = summarize_task(call, info);
            summary.agent.iter_mut().for_each(|agent| agent.approvals.clear());
            let approvals = pending.iter().map(approval_forms::render_form_message);
            summary.guidance().into_iter().chain(approvals).collect::<Vec<_>>().join("\n")
        }
        TaskPayload::Working => match task_text::render_status_line(call, info).await {
            Some(line) => format!("{}: {line}", info.state),
            None => info.state.clone(),
        },
        _ => summarize_task(call, info).headline(),
    });
    Ok(DetailedTask::new(task, payload))
}

/// Returns true if only the model that started the task can answer its questions. The protocol task
/// then completes with the question as its result, so that the model reads it.
fn asks_model(info: &TaskInfo, pending: &[PendingApprovalItem]) -> bool {
    pending.is_empty() && !info.questions.is_empty() && !info.questions.iter().any(is_for_client)
}

/// Returns true for a failure of the work itself. Other failures are errors of the protocol task.
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
        // A failure that this list does not name yet.
        _ => false,
    }
}

/// Converts a reply into a tool result of the protocol.
pub(super) fn to_tool_result(reply: McpToolReply) -> CallToolResult {
    match reply {
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
