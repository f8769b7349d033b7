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

use super::run_process::{ended_answer, in_background};
use super::summary::summary;
use super::tool::{Answer, Call};
use super::{approvals, text};
use crate::info::{Question, TaskInfo};
use crate::requests::{PendingInfo, Started, Stop};

/// A run that ends as fast as this is answered without a task.
pub(super) const AT_ONCE: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_secs(1);
/// The field of a form that asks a question.
const ANSWER: &str = "answer";
const NO_ANSWER: &str = "The question was declined: there is no answer. Decide as you see fit, or end \
    with what you have.";

/// What is known of a task as soon as it exists.
pub(super) fn seed(call: &Call, info: &TaskInfo) -> Task {
    let id = format!("{}/{}", info.session, info.address);
    let updated = info.ended.unwrap_or(info.moved);
    let status = if info.living { TaskStatus::Working } else { TaskStatus::Completed };
    let task = Task::new(id, status, text::timestamp(info.spawned), text::timestamp(updated));
    let mut task = task.with_poll_interval_ms(POLL.as_millis() as u64);
    // None is unlimited: kept until somebody prunes.
    task.ttl_ms = call.options.kept.map(|kept| kept.as_millis() as u64);
    task
}

/// As it is now. A result that nobody took is taken by this.
pub(super) async fn get(call: &Call, id: &str) -> Result<DetailedTask, Refusal> {
    let mut info = call.show(id).await?;
    if !info.living && !info.collected {
        let taken = call.wait(&[id.to_owned()], WaitMode::All, AT_ONCE).await?;
        info = taken.ended.into_iter().next().unwrap_or(info);
    }
    detailed(call, &info).await
}

pub(super) async fn cancel(call: &Call, id: &str) -> Result<(), Refusal> {
    let question = || Stop {
        target: call.target(id),
        reason: Some("cancelled by the client".to_owned()),
        grace_ms: None,
    };
    call.line.ask(question).await.map(|_| ())
}

/// Takes what the client answers. What is not asked, or no longer, is passed over.
pub(super) async fn update(
    call: &Call,
    id: &str,
    responses: InputResponses,
) -> Result<(), Refusal> {
    let info = call.show(id).await?;
    approvals::update(call, &info, &responses).await?;
    for question in info.questions.iter().filter(|question| is_for_client(question)) {
        let Some(response) = responses.get(&key(question)) else { continue };
        let answer = Json::of(&answer(response)?)?;
        match call.answer(id, question.call, &answer).await {
            Err(refusal) if refusal.kind == RefusalKind::NotFound => {}
            answered => answered?,
        }
    }
    Ok(())
}

/// Numbers of questions grow over all runs of a task.
fn key(question: &Question) -> String {
    format!("question-{}", question.call)
}

/// Whether the program on the other side is to do something. Any other question is for its model, which
/// no form reaches.
fn is_for_client(question: &Question) -> bool {
    question.client.is_some()
}

/// Each tool that the client is to run, as a form with one field, and each call that waits for leave.
fn input_requests(call: &Call, info: &TaskInfo, pending: &[PendingInfo]) -> InputRequests {
    let who = info.name.clone().unwrap_or_else(|| call.address(info));
    let for_client = info.questions.iter().filter(|question| is_for_client(question));
    let requests = for_client.map(|question| {
        let field = PrimitiveSchemaDefinition::String(StringSchema::new().title("Answer"));
        let schema = ElicitationSchema::new([(ANSWER.to_owned(), field)].into());
        let form = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: format!("{who} {}: {}", question.verb(), question.text),
            requested_schema: schema.with_required(vec![ANSWER.to_owned()]),
        };
        (key(question), InputRequest::Elicitation(ElicitRequest::new(form)))
    });
    let leave = pending.iter().map(|one| (approvals::key(one), approvals::form(one)));
    requests.chain(leave).collect()
}

/// What the agent hears.
fn answer(response: &Value) -> Result<String, Refusal> {
    let result: ElicitResult = serde_json::from_value(response.clone()).map_err(|error| {
        Refusal::invalid(format!(
            "that does not answer a form: {error}; action is missing or wrong"
        ))
    })?;
    match (result.action, result.content) {
        (ElicitationAction::Accept, Some(content)) => Ok(match content.get(ANSWER) {
            Some(Value::String(text)) => text.clone(),
            _ => content.to_string(),
        }),
        (ElicitationAction::Accept, None) => {
            Err(Refusal::invalid("that accepts the form and has no content"))
        }
        // It goes on without: an agent that is left to wait would do so for ever.
        _ => Ok(NO_ANSWER.to_owned()),
    }
}

/// Tells the client of each change of status until the task has ended. Within a subscription it
/// begins with how things are.
pub(super) async fn watch(
    call: Call,
    id: String,
    peer: Peer<RoleServer>,
    within: Option<RequestId>,
) {
    let mut told = if within.is_some() { String::new() } else { QUEUED_OR_RUNNING.to_owned() };
    loop {
        let Ok(info) = call.show(&id).await else { return };
        let Ok(pending) = approvals::pending(&call, &info).await else { return };
        let open = info.questions.iter().map(key).chain(pending.iter().map(approvals::key));
        let now = match open.collect::<Vec<_>>().join(" ") {
            none if none.is_empty() && info.living && within.is_none() => {
                QUEUED_OR_RUNNING.to_owned()
            }
            none if none.is_empty() => info.state.clone(),
            open => open,
        };
        if now != told {
            told = now;
            let Ok(task) = detailed(&call, &info).await else { return };
            let told = peer.send_notification(notification(task, within.clone())).await;
            if told.is_err() || !info.living || asks_model(&info, &pending) {
                return;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            () = call.gone.cancelled() => return,
            () = call.cancelled.cancelled(), if within.is_some() => return,
        }
    }
}

/// What a client knows of a task whose handle it has.
const QUEUED_OR_RUNNING: &str = "working";

fn notification(task: DetailedTask, within: Option<RequestId>) -> ServerNotification {
    let mut told = TaskStatusNotification::new(TaskStatusNotificationParams::new(task));
    if let Some(within) = within {
        let mut meta = NotificationMetaObject::new();
        meta.set_subscription_id(within);
        told.extensions.insert(meta);
    }
    ServerNotification::TaskStatusNotification(told)
}

async fn detailed(call: &Call, info: &TaskInfo) -> Result<DetailedTask, Refusal> {
    let mut task = seed(call, info);
    let pending = approvals::pending(call, info).await?;
    let payload = match &info.outcome {
        None if asks_model(info, &pending) => {
            let started = Started { task: info.clone(), existed: false };
            let answer = in_background(call, &started, BackgroundReason::InputRequired).await?;
            let result = serde_json::to_value(said(answer)).unwrap_or_default();
            TaskPayload::Completed { result: object(result) }
        }
        None if !info.questions.is_empty() || !pending.is_empty() => {
            TaskPayload::InputRequired { input_requests: input_requests(call, info, &pending) }
        }
        None => TaskPayload::Working,
        Some(Outcome::Cancelled(_)) => TaskPayload::Cancelled,
        Some(Outcome::Failed(failed)) if !is_a_result(&failed.failure) => {
            let message = summary(call, info).headline();
            let error = json!({ "code": ErrorCode::INTERNAL_ERROR, "message": message });
            TaskPayload::Failed { error: object(error) }
        }
        Some(Outcome::Succeeded { .. } | Outcome::Failed(_)) => {
            let answer = ended_answer(call, info).await?;
            let result = serde_json::to_value(said(answer)).unwrap_or_default();
            TaskPayload::Completed { result: object(result) }
        }
    };
    task.status_message = Some(match payload {
        TaskPayload::InputRequired { .. } => {
            // The forms show pending approvals, here and of all descendants.
            let mut told = summary(call, info);
            told.agent.iter_mut().for_each(|agent| agent.approvals.clear());
            let approvals = pending.iter().map(approvals::asks);
            told.guidance().into_iter().chain(approvals).collect::<Vec<_>>().join("\n")
        }
        TaskPayload::Working => match text::glance(call, info).await {
            Some(line) => format!("{}: {line}", info.state),
            None => info.state.clone(),
        },
        _ => summary(call, info).headline(),
    });
    Ok(DetailedTask::new(task, payload))
}

/// Whether nothing but the model that started it can help it on. Then its task of the protocol is over
/// with the question as the result: that is how the model gets to read it.
fn asks_model(info: &TaskInfo, pending: &[PendingInfo]) -> bool {
    pending.is_empty() && !info.questions.is_empty() && !info.questions.iter().any(is_for_client)
}

/// Whether the command had its say, as against something that befell it.
fn is_a_result(failure: &Failure) -> bool {
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
pub(super) fn said(answer: Answer) -> CallToolResult {
    match answer {
        Answer::Said(reply) => {
            let mut result = CallToolResult::success(vec![ContentBlock::text(reply.text())]);
            result.structured_content = Some(reply.structured());
            result
        }
        Answer::Task(info) => CallToolResult::success(vec![ContentBlock::text(info.address)]),
    }
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}
