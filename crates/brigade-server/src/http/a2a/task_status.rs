//! The status and the artifacts of a task, as the protocol shows them.
//!
//! | Brigade | A2A |
//! |---|---|
//! | queued | submitted |
//! | running, waiting, stopping, closing | working |
//! | alive with an open question, client tool call or approval | input required |
//! | succeeded, failed, cancelled | completed, failed, canceled |
//!
//! A refused start is rejected. It leaves no task.

use std::collections::HashMap;

use a2a::{Artifact, Message, Part, Role, TaskState, TaskStatus};
use brigade_model::ids::{ConversationId, Time};
use brigade_model::json::Json;
use brigade_model::outcome::{LateResult, Outcome};
use brigade_model::task::{self, TaskRow};
use brigade_protocol::http::TaskId;
use brigade_protocol::task_info::{ApprovalInfo, QuestionInfo, TaskInfo};
use brigade_runtime::{PendingApproval, Session};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::request_context::LocatedTask;

/// The size of the calls in one status message. At least one approval is shown.
const APPROVAL_BYTES_MAX: usize = 1024 * 1024;

/// A task with all that its status depends on.
#[derive(Clone, Debug)]
pub(crate) struct TaskFacts {
    pub(crate) id: TaskId,
    pub(crate) context_id: String,
    questions: Vec<QuestionInfo>,
    approvals: Vec<PendingApproval>,
}

impl TaskFacts {
    pub(crate) fn of(found: &LocatedTask, approvals: &[PendingApproval]) -> Self {
        let LocatedTask { session, no, row, .. } = found;
        let is_alive = row.is_alive();
        let own = approvals.iter().filter(|approval| approval.top_task == *no && is_alive);
        let info = TaskInfo::of(&session.row().name, *no, row);
        Self {
            id: TaskId { session: session.id(), no: *no },
            context_id: context_of(session, row),
            questions: if is_alive { info.questions } else { Vec::new() },
            approvals: own.cloned().collect(),
        }
    }

    pub(crate) fn state(&self, row: &TaskRow) -> TaskState {
        match &row.state {
            task::TaskState::Ended(ended) => match &*ended.outcome {
                Outcome::Succeeded { .. } => TaskState::Completed,
                Outcome::Failed(_) => TaskState::Failed,
                Outcome::Cancelled(_) => TaskState::Canceled,
            },
            _ if self.needs_input() => TaskState::InputRequired,
            task::TaskState::Queued(_) => TaskState::Submitted,
            _ => TaskState::Working,
        }
    }

    pub(crate) fn status(&self, row: &TaskRow) -> TaskStatus {
        let state = self.state(row);
        let message = match row.ended() {
            Some(ended) if !ended.outcome.is_success() => {
                let id = format!("{}-outcome-{}", self.id, row.run);
                let parts = vec![Part::text(ended.outcome.to_string())];
                Some(self.message(id, parts))
            }
            _ if state == TaskState::InputRequired => Some(self.input_message()),
            _ => None,
        };
        TaskStatus { state, message, timestamp: to_timestamp(changed_at(row)) }
    }

    fn needs_input(&self) -> bool {
        !self.questions.is_empty() || !self.approvals.is_empty()
    }

    /// Returns the number of the question that the next message answers.
    pub(crate) fn first_question(&self) -> Option<u32> {
        self.questions.first().map(|question| question.call)
    }

    pub(crate) fn has_approval(&self, task: TaskId, call: u32) -> bool {
        let is_same = |approval: &PendingApproval| {
            approval.task == task.no && approval.call.0 == call && task.session == self.id.session
        };
        self.approvals.iter().any(is_same)
    }

    /// Returns the message that says which input is required: for people as text, for programs as
    /// data.
    fn input_message(&self) -> Message {
        let mut texts: Vec<String> = Vec::new();
        let mut calls: Vec<String> = Vec::new();
        let mut approvals: Vec<Value> = Vec::new();
        for question in &self.questions {
            texts.push(question.text.clone());
            calls.push(question.call.to_string());
        }
        let mut bytes = 0;
        let mut omitted = 0;
        for pending in &self.approvals {
            let PendingApproval { task, call, request, requested_at, .. } = pending;
            let info = ApprovalInfo::of(*task, *call, request, *requested_at);
            bytes += info.arguments.len();
            if bytes > APPROVAL_BYTES_MAX && !approvals.is_empty() {
                omitted += 1;
                continue;
            }
            texts.push(format!("May it call {}?", info.text));
            calls.push(format!("{task}.{call}"));
            let task = TaskId { session: self.id.session, no: *task };
            approvals.push(json!({ "task": task, "approval": info }));
        }
        if omitted > 0 {
            texts.push(format!("{omitted} further approvals are shown after these are decided."));
        }
        let data = json!({ "questions": self.questions, "approvals": approvals });
        let id = format!("{}-input-{}", self.id, calls.join("-"));
        self.message(id, vec![Part::text(texts.join("\n\n")), Part::data(data)])
    }

    pub(crate) fn message(&self, id: String, parts: Vec<Part>) -> Message {
        Message {
            message_id: id,
            context_id: Some(self.context_id.clone()),
            task_id: Some(self.id.to_string()),
            role: Role::Agent,
            parts,
            metadata: None,
            extensions: None,
            reference_task_ids: None,
        }
    }
}

/// Returns the context of a task: the conversation that started it. A task without one, which was
/// not started by a message of A2A, is in the context of its session.
pub(crate) fn context_of(session: &Session, row: &TaskRow) -> String {
    let client = row.client.as_ref();
    let conversation = client.and_then(|client| client.conversation.as_ref());
    let conversation = conversation.map(ConversationId::as_str).filter(|id| !id.is_empty());
    conversation.map_or_else(|| session.id().to_string(), str::to_owned)
}

/// Returns the result of a task as an artifact, if there is one. A partial result says so.
pub(crate) fn artifacts_of(row: &TaskRow) -> Vec<Artifact> {
    let Some(ended) = row.ended() else { return Vec::new() };
    let artifact = match &*ended.outcome {
        Outcome::Succeeded { result } => Some(new_artifact("result", result)),
        Outcome::Failed(failed) => failed.partial.as_ref().map(new_partial),
        Outcome::Cancelled(cancelled) => match &cancelled.late {
            Some(LateResult::Result(late)) => Some(new_partial(late)),
            Some(LateResult::Failure(_)) | None => cancelled.partial.as_ref().map(new_partial),
        },
    };
    artifact.into_iter().collect()
}

fn new_partial(result: &Json) -> Artifact {
    let metadata = HashMap::from([("partial".to_owned(), Value::Bool(true))]);
    Artifact { metadata: Some(metadata), ..new_artifact("partial-result", result) }
}

fn new_artifact(id: &str, result: &Json) -> Artifact {
    let part = match result.decode::<Value>() {
        Ok(Value::String(text)) => Part::text(text),
        Ok(value) => Part::data(value),
        Err(_) => Part::text(result.as_str()),
    };
    Artifact {
        artifact_id: id.to_owned(),
        name: Some(id.to_owned()),
        description: None,
        parts: vec![part],
        metadata: None,
        extensions: None,
    }
}

pub(crate) fn changed_at(row: &TaskRow) -> Time {
    row.state_since().unwrap_or(row.last_activity_at)
}

fn to_timestamp(time: Time) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis(i64::try_from(time.0).ok()?)
}
