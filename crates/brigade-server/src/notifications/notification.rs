//! A notification: one event of a task, as the JSON that a receiver gets.

use std::fmt;
use std::sync::Arc;

use brigade_model::approval::ApprovalRequest;
use brigade_model::call::{Condition, RunResult};
use brigade_model::event::{Event, EventRecord};
use brigade_model::ids::{CallIndex, Owner, RunNo, Seq, SessionId, TaskNo, Time};
use brigade_model::json::Json;
use brigade_model::message::{MessagePurpose, MessageSender};
use brigade_model::name::SessionName;
use brigade_model::outcome::{Failure, LateResult, Outcome};
use brigade_model::plain_text::PlainText;
use brigade_model::result_text::{render_json, render_result};
use brigade_model::task::TaskRow;
use brigade_model::task_tree::SessionRow;
use brigade_model::truncate::{head_json_bytes, truncate_chars};
use brigade_protocol::task_info::TaskInfo;
use serde::{Deserialize, Serialize};

/// The most bytes of a result, a question or the arguments of a call, in JSON.
const TEXT_BYTES_MAX: usize = 8 * 1024;
/// The most bytes of the details of an outcome, in JSON.
const DETAIL_BYTES_MAX: usize = 2 * 1024;
const DESCRIPTION_CHARS_MAX: usize = 200;
const SUMMARY_CHARS_MAX: usize = 300;

/// The kind of event that a notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotificationKind {
    /// A run has an outcome.
    Ended,
    /// A task asks the operator.
    Question,
    /// A call needs an approval.
    Approval,
}

impl NotificationKind {
    pub const ALL: [Self; 3] = [Self::Ended, Self::Question, Self::Approval];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Question => "question",
            Self::Approval => "approval",
        }
    }
}

impl fmt::Display for NotificationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The JSON that a receiver gets. Repeats have the same text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// The same in each repeat, and in no other notification of this notifier.
    pub key: String,
    pub notifier: String,
    /// The time of the event, in milliseconds since the epoch.
    pub at: u64,
    /// One line for a person.
    pub summary: String,
    #[serde(flatten)]
    pub event: NotifiedEvent,
    #[serde(flatten)]
    pub task: NotifiedTask,
}

/// The event, with its details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum NotifiedEvent {
    Ended { outcome: NotifiedOutcome },
    Question { question: NotifiedQuestion },
    Approval { approval: NotifiedApproval },
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifiedOutcome {
    /// `succeeded`, `failed` or `cancelled`.
    pub state: String,
    /// The kind of failure, such as `exit_code`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The outcome as a text, such as `failed (exit code 2)`.
    pub detail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The result or partial result: a text, or JSON as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// True if `result` is only the beginning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub result_truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifiedQuestion {
    /// The number of the call, which an answer names.
    pub call: u32,
    pub text: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub text_truncated: bool,
}

/// A call that needs an approval. It is not sufficient for a decision, which names the digest of the
/// whole call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifiedApproval {
    /// The number of the call, which a verdict names.
    pub call: u32,
    pub tool: String,
    /// The call in one line.
    pub text: String,
    /// The arguments as JSON text.
    pub arguments: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub arguments_truncated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// The task of a notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifiedTask {
    pub session: String,
    pub session_id: String,
    /// `agent:3`, or only the number if the task is not stored any more.
    pub address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `agent`, `process` or `job`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The command line, the job, or the agent's prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The number of the parent; none for a top-level task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The run that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    /// In milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawned_at: Option<u64>,
}

impl NotifiedTask {
    pub(super) fn is_top_level(&self) -> bool {
        self.parent.is_none()
    }
}

/// An event that notifiers may select, before its task is read.
#[derive(Clone, Debug)]
pub(super) struct NotableEvent {
    pub(super) session: SessionId,
    pub(super) no: TaskNo,
    seq: Seq,
    at: Time,
    details: EventDetails,
}

#[derive(Clone, Debug)]
enum EventDetails {
    Ended { run: RunNo, outcome: Arc<Outcome> },
    Question { call: CallIndex, text: Json },
    Approval { call: CallIndex, request: Arc<ApprovalRequest> },
}

impl NotableEvent {
    /// Returns the event if it is an outcome, a question to the operator, or an approval that
    /// somebody must decide.
    pub(super) fn of(record: &EventRecord) -> Option<Self> {
        let (no, details) = match &record.event {
            Event::Ended { no, run, outcome, .. } => {
                (*no, EventDetails::Ended { run: *run, outcome: outcome.clone() })
            }
            Event::MessageSent(message) => match (message.purpose, &message.from, message.to) {
                (MessagePurpose::Question(call), MessageSender::Child(no), Owner::Session) => {
                    (*no, EventDetails::Question { call, text: message.body.clone() })
                }
                _ => return None,
            },
            Event::Parked { no, call } => match &call.condition {
                Condition::Approval { request, .. }
                    if !request.is_unattended && !request.is_too_large() =>
                {
                    let request = request.clone();
                    (*no, EventDetails::Approval { call: call.index, request })
                }
                _ => return None,
            },
            _ => return None,
        };
        let EventRecord { session, seq, at, .. } = record;
        Some(Self { session: *session, no, seq: *seq, at: *at, details })
    }

    pub(super) fn kind(&self) -> NotificationKind {
        match &self.details {
            EventDetails::Ended { .. } => NotificationKind::Ended,
            EventDetails::Question { .. } => NotificationKind::Question,
            EventDetails::Approval { .. } => NotificationKind::Approval,
        }
    }

    /// Returns whether a grant decided the approval at once.
    pub(super) fn is_granted(&self, session: &SessionRow, task: Option<&TaskRow>) -> bool {
        let EventDetails::Approval { request, .. } = &self.details else { return false };
        let client = task.and_then(|row| row.client.as_ref()).map(|client| &client.name);
        session.grants.all.iter().any(|grant| {
            let applies = grant.client.is_none() || grant.client.as_ref() == client;
            applies && grant.granted_at < self.at && grant.allows(request)
        })
    }

    /// Returns the notification without a notifier. The row is missing if the task was pruned.
    pub(super) fn describe(&self, session: &SessionName, row: Option<&TaskRow>) -> Notification {
        let info = row.map(|row| TaskInfo::of(session, self.no, row));
        let mut task = NotifiedTask {
            session: session.to_string(),
            session_id: self.session.to_string(),
            address: self.no.to_string(),
            name: None,
            kind: None,
            description: None,
            parent: None,
            run: None,
            spawned_at: row.map(|row| row.spawned_at.0),
        };
        if let Some(info) = &info {
            task.address.clone_from(&info.address);
            task.name.clone_from(&info.name);
            task.kind = Some(info.kind.clone());
            task.description = Some(truncate_chars(&info.description, DESCRIPTION_CHARS_MAX));
            task.parent.clone_from(&info.parent);
        }
        let event = match &self.details {
            EventDetails::Ended { run, outcome } => {
                task.run = Some(run.0);
                let info = info.zip(row).map(|(info, row)| {
                    info.for_run(&RunResult {
                        no: self.no,
                        run: *run,
                        kind: row.spec.work.kind(),
                        name: row.name.clone(),
                        outcome: outcome.clone(),
                        ended_at: self.at,
                        collected_before: false,
                    })
                });
                NotifiedEvent::Ended { outcome: NotifiedOutcome::of(outcome, info.as_ref()) }
            }
            EventDetails::Question { call, text } => {
                let (text, text_truncated) = bounded_text(&render_json(text), TEXT_BYTES_MAX);
                let question = NotifiedQuestion { call: call.0, text, text_truncated };
                NotifiedEvent::Question { question }
            }
            EventDetails::Approval { call, request } => {
                NotifiedEvent::Approval { approval: NotifiedApproval::of(*call, request) }
            }
        };
        Notification {
            key: format!("{}-{}", self.session, self.seq.0),
            notifier: String::new(),
            at: self.at.0,
            summary: render_summary(&task, &event),
            event,
            task,
        }
    }
}

impl NotifiedOutcome {
    fn of(outcome: &Outcome, info: Option<&TaskInfo>) -> Self {
        let (failure, result) = match outcome {
            Outcome::Succeeded { result } => (None, Some(result)),
            Outcome::Failed(failed) => (Some(failed.failure.label()), failed.partial.as_ref()),
            Outcome::Cancelled(cancelled) => match &cancelled.late {
                Some(LateResult::Result(result)) => (None, Some(result)),
                Some(LateResult::Failure(_)) | None => (None, cancelled.partial.as_ref()),
            },
        };
        let result = result.map(|result| bounded_text(&render_result(result), TEXT_BYTES_MAX));
        let (result, result_truncated) = result.unzip();
        let (exit_code, signal) = match outcome {
            Outcome::Failed(failed) => exit_of(&failed.failure),
            _ => (None, None),
        };
        Self {
            state: outcome.label().to_owned(),
            failure: failure.map(str::to_owned),
            detail: bounded_text(&outcome.to_string(), DETAIL_BYTES_MAX).0,
            exit_code: info.and_then(|info| info.exit_code).or(exit_code),
            signal: info.and_then(|info| info.signal).or(signal),
            result,
            result_truncated: result_truncated.unwrap_or(false),
        }
    }
}

fn exit_of(failure: &Failure) -> (Option<i32>, Option<i32>) {
    match failure {
        Failure::ExitCode(code) => (Some(*code), None),
        Failure::Signal(signal) => (None, Some(*signal)),
        _ => (None, None),
    }
}

impl NotifiedApproval {
    fn of(call: CallIndex, request: &ApprovalRequest) -> Self {
        let (arguments, arguments_truncated) =
            bounded_text(&request.arguments.text, TEXT_BYTES_MAX);
        let bounded = |text: &str| bounded_text(text, DETAIL_BYTES_MAX).0;
        Self {
            call: call.0,
            tool: bounded(&request.tool),
            text: bounded(&request.to_string()),
            arguments,
            arguments_truncated,
            directory: request.directory.as_deref().map(bounded),
        }
    }
}

/// Returns the beginning of a text, and whether something is missing.
fn bounded_text(text: &str, max_bytes: usize) -> (String, bool) {
    let head = head_json_bytes(text, max_bytes);
    (head.to_owned(), head.len() < text.len())
}

fn render_summary(task: &NotifiedTask, event: &NotifiedEvent) -> String {
    let name = task.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let event = match event {
        NotifiedEvent::Ended { outcome } => outcome.detail.clone(),
        NotifiedEvent::Question { question } => format!("asks: {}", question.text),
        NotifiedEvent::Approval { approval } => format!("needs approval: {}", approval.text),
    };
    let line = PlainText::line(&format!("{}/{}{name} {event}", task.session, task.address));
    truncate_chars(line.as_str(), SUMMARY_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use brigade_model::call::ParkedCall;
    use brigade_model::ids::MessageNo;
    use brigade_model::message::Message;
    use brigade_model::permission::PermissionSubject;
    use brigade_store::RECORD_VALUE_BYTES_MAX;

    use super::super::pending_notification::PendingNotification;
    use super::*;

    fn task(number: u32) -> TaskNo {
        TaskNo::new(number).unwrap()
    }

    fn record(event: Event) -> EventRecord {
        let session = SessionId::from_uuid(uuid::Uuid::from_u128(1));
        EventRecord { session, seq: Seq(7), at: Time(1_000), by: None, event }
    }

    fn question(to: Owner) -> EventRecord {
        record(Event::MessageSent(Arc::new(Message {
            no: MessageNo(1),
            to,
            from: MessageSender::Child(task(2)),
            body: Json::of("Red or blue?").unwrap(),
            sent_at: Time(1_000),
            purpose: MessagePurpose::Question(CallIndex(3)),
            interrupt: false,
            reply_to: None,
            closes_input: false,
            name: None,
            key: None,
        })))
    }

    fn approval(arguments: &str, is_unattended: bool) -> EventRecord {
        let subject = PermissionSubject { tool: "write_file", text: None, is_shell: false };
        let rule = "write_file".parse().unwrap();
        let request = ApprovalRequest::new(&subject, arguments, rule, "the caller".into());
        let request = ApprovalRequest { is_unattended, ..request };
        let condition = Condition::Approval { request: request.into(), since: Time(1_000) };
        let call = ParkedCall { index: CallIndex(3), condition };
        record(Event::Parked { no: task(2), call: Box::new(call) })
    }

    #[test]
    fn only_questions_and_approvals_for_a_person_are_notable() {
        let is_notable = |record: EventRecord| NotableEvent::of(&record).is_some();
        assert!(is_notable(question(Owner::Session)));
        assert!(!is_notable(question(Owner::Task(task(1)))), "its parent answers");
        assert!(is_notable(approval("{}", false)));
        assert!(!is_notable(approval("{}", true)), "it is denied at once");
        assert!(!is_notable(approval(&"x".repeat(100_000), false)), "it is denied at once");
        assert!(!is_notable(record(Event::Acknowledged { no: task(2) })));
    }

    #[test]
    fn the_largest_notification_fits_into_a_record() {
        let name: SessionName = "kitchen".parse().unwrap();
        let hostile = "\u{1}\"\n".repeat(15_000);
        let outcome = Outcome::Succeeded { result: Json::of(&hostile).unwrap() };
        let succeeded =
            Event::Ended { no: task(2), run: RunNo(1), outcome: outcome.into(), lingering: false };
        let failure = Outcome::failed(Failure::Panic(hostile.as_str().into()));
        let failed =
            Event::Ended { no: task(2), run: RunNo(1), outcome: failure.into(), lingering: false };
        for event in [record(succeeded), record(failed), approval(&hostile, false)] {
            let notification = NotableEvent::of(&event).unwrap().describe(&name, None);
            let json = serde_json::to_value(&notification).unwrap();
            assert_eq!((&json["address"], &json["session"]), (&"2".into(), &"kitchen".into()));
            assert_eq!(json["key"], format!("{}-7", event.session));
            assert!(!notification.summary.contains(['\n', '\u{1}']), "{}", notification.summary);
            let pending = PendingNotification::new(notification, Time(2_000));
            let bytes = serde_json::to_vec(&pending).unwrap();
            assert!(bytes.len() < RECORD_VALUE_BYTES_MAX / 2, "{} bytes", bytes.len());
            let read: PendingNotification = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(read, pending);
        }
    }
}
