//! Changes: the events of the feed, as the API has them.

use std::fmt;
use std::sync::LazyLock;

use brigade_model::approval::{ApprovalGrant, ApprovalVerdict, GrantScope};
use brigade_model::event::{Event, EventRecord, SpawnedEvent};
use brigade_model::ids::{SessionId, TaskNo};
use brigade_model::message::{Message, MessagePurpose, MessageSender};
use brigade_model::outcome::Outcome;
use brigade_model::task::{QueueReason, StopCause};
use brigade_model::truncate::truncate_chars;
use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::task::{failure_code, initiator_code};
use super::{ApiTime, AuthorBody, OutcomeBody, TaskBody, TaskId, UsageBody, WaitBody};

/// The maximum length of a text in a change.
const TEXT_CHARS_MAX: usize = 200;
/// The maximum size of a progress note in a change.
const PROGRESS_BYTES_MAX: usize = 2_000;

/// A change of a session or a task.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Change)]
pub struct ChangeBody {
    /// Open: the name of the event, such as `spawned`, `parked`, `message_sent` or `ended`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The id of its session.
    pub session: String,
    /// The task that it concerns, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The number within its session. Numbers of other sessions are unrelated.
    pub seq: u64,
    pub at: ApiTime,
    /// The author of the request that caused the change. Absent if the change is a consequence of
    /// another one, or if no request caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<AuthorBody>,
    /// The fields of this type.
    #[schema(value_type = Object)]
    pub data: Map<String, Value>,
    /// The task as it is now, which may be newer than the change. Only with `rows=true`, and only if
    /// the task is still stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<Box<TaskBody>>,
}

/// A page of changes.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ChangeList)]
pub struct ChangeListBody {
    pub items: Vec<ChangeBody>,
    /// The place after the page: the parameter `after` of the next one.
    pub cursor: String,
    /// There are more changes up to the time of the request.
    pub has_more: bool,
    /// Changes between the requested place and the page are no longer stored.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gap: bool,
}

impl ChangeBody {
    /// Returns the change without the task's row.
    pub fn of(record: &EventRecord) -> Self {
        let session = record.session;
        let ChangeFields { kind, data } = describe(session, &record.event);
        Self {
            kind: kind.to_owned(),
            session: session.to_string(),
            task: record.event.task().map(|no| TaskId { session, no }),
            seq: record.seq.0,
            at: record.at.into(),
            by: record.by.as_deref().map(|author| AuthorBody::of(session, author)),
            data: data.0,
            row: None,
        }
    }
}

/// Returns the types of all changes.
pub fn change_types() -> &'static [&'static str] {
    static TYPES: LazyLock<&'static [&'static str]> = LazyLock::new(|| {
        let mut variants: &'static [&'static str] = &[];
        // The deserializer fails after it was told the names of the variants.
        let _ = Event::deserialize(VariantNames { variants: &mut variants });
        variants
    });
    *TYPES
}

struct ChangeFields {
    kind: &'static str,
    data: DataFields,
}

/// The fields of one type. An absent value is omitted.
#[derive(Default)]
struct DataFields(Map<String, Value>);

impl DataFields {
    fn with(self, name: &str, value: impl Serialize) -> Self {
        self.with_some(name, Some(value))
    }

    fn with_some(mut self, name: &str, value: Option<impl Serialize>) -> Self {
        if let Some(Ok(value)) = value.map(serde_json::to_value) {
            self.0.insert(name.to_owned(), value);
        }
        self
    }

    fn with_text(self, name: &str, text: Option<&str>) -> Self {
        self.with_some(name, text.map(|text| truncate_chars(text, TEXT_CHARS_MAX)))
    }
}

/// Returns the type of an event and the fields that a reader may rely on. Values that may be large
/// or secret are not among them: other routes have them.
fn describe(session: SessionId, event: &Event) -> ChangeFields {
    let none = DataFields::default();
    let task = |no: TaskNo| TaskId { session, no };
    let (kind, data) = match event {
        Event::SessionOpened { name, .. } => ("session_opened", none.with("name", name.as_str())),
        Event::SessionClosing { reason } => {
            ("session_closing", none.with_text("reason", reason.as_deref()))
        }
        Event::SessionClosed => ("session_closed", none),
        Event::LimitsSet { .. } => ("limits_set", none),
        Event::Spawned(spawned) => ("spawned", describe_spawn(session, spawned)),
        Event::Started { attempt, .. } => ("started", none.with("attempt", attempt.0)),
        Event::Queued { reason, .. } => ("queued", with_queue_reason(none, session, reason)),
        Event::Recovered { crashes, until, .. } => {
            ("recovered", none.with("crashes", crashes).with("until", ApiTime(*until)))
        }
        Event::Away { away, .. } => {
            let data = none.with("node", &away.node).with("since", ApiTime(away.since));
            ("away", data.with("until", ApiTime(away.until)))
        }
        Event::Unattended { .. } => ("unattended", none),
        Event::Returned { .. } => ("returned", none),
        Event::Ready { .. } => ("ready", none),
        Event::Recorded { index, .. } => ("recorded", none.with("call", index.0)),
        Event::Parked { call, .. } => ("parked", none.with("wait", WaitBody::of(session, call))),
        Event::CallCompleted { index, .. } => ("call_completed", none.with("call", index.0)),
        Event::ApprovalDecided { index, verdict, .. } => {
            ("approval_decided", with_verdict(none.with("call", index.0), verdict))
        }
        Event::GrantAdded(grant) => ("grant_added", describe_grant(grant)),
        Event::GrantRevoked { grant } => ("grant_revoked", none.with("grant", grant)),
        Event::Abandoned { index, .. } => ("abandoned", none.with("call", index.0)),
        Event::Acknowledged { .. } => ("acknowledged", none),
        Event::Suspended { .. } => ("suspended", none),
        Event::Progressed { note, .. } => {
            let note = Some(note).filter(|note| note.as_str().len() <= PROGRESS_BYTES_MAX);
            ("progressed", none.with_some("progress", note))
        }
        Event::StateSet { .. } => ("state_set", none),
        Event::WorktreeSet { worktree, .. } => {
            ("worktree_set", none.with("path", &worktree.path).with("branch", &worktree.branch))
        }
        Event::WorktreeReleased { state, .. } => ("worktree_released", none.with("state", state)),
        Event::SharedValueSet { name, .. } => {
            ("shared_value_set", none.with_text("name", Some(name)))
        }
        Event::Stalled { nudged, .. } => ("stalled", none.with("nudged", nudged)),
        Event::Reserved { amount, .. } => {
            ("reserved", none.with("amount", UsageBody::from(**amount)))
        }
        Event::Charged { spent, at_most, .. } => {
            let data = none.with("spent", UsageBody::from(**spent));
            ("charged", data.with("at_most", at_most))
        }
        Event::MessageSent(message) => ("message_sent", describe_message(session, message)),
        Event::MessageDelivered { message, .. } => {
            ("message_delivered", none.with("message", message.0))
        }
        Event::MessageRead { message, .. } => ("message_read", none.with("message", message.0)),
        Event::MessageDeliveryUnknown { message, .. } => {
            ("message_delivery_unknown", none.with("message", message.0))
        }
        Event::DeadLettered { messages, reason, .. } => {
            let data = none.with("messages", messages);
            ("dead_lettered", data.with_text("reason", Some(reason)))
        }
        Event::StopRequested { cause, deadline, .. } => {
            ("stop_requested", with_stop_cause(none, cause).with("deadline", ApiTime(*deadline)))
        }
        Event::StopForced { deadline, .. } => {
            ("stop_forced", none.with("deadline", ApiTime(*deadline)))
        }
        Event::Swept { count } => ("swept", none.with("count", count)),
        Event::Closing { outcome, .. } => ("closing", with_outcome(none, outcome)),
        Event::Ended { run, outcome, lingering, .. } => {
            let data = with_outcome(none.with("run", run.0), outcome);
            ("ended", data.with("lingering", lingering))
        }
        Event::SlotReturned { .. } => ("slot_returned", none),
        Event::PassedToSession { deadline, .. } => {
            let deadline = deadline.as_ref().map(|deadline| ApiTime(deadline.at));
            ("passed_to_session", none.with_some("deadline", deadline))
        }
        Event::Collected { runs } => {
            let runs: Vec<CollectedRunBody> = runs
                .iter()
                .map(|run| CollectedRunBody { task: task(run.no), run: run.run.0 })
                .collect();
            ("collected", none.with("runs", runs))
        }
        Event::RunOpened { owner, .. } => {
            ("run_opened", none.with_some("parent", owner.task().map(task)))
        }
        // Other crates cannot match all events. A test does.
        _ => ("other", none),
    };
    ChangeFields { kind, data }
}

#[derive(Serialize)]
struct CollectedRunBody {
    task: TaskId,
    run: u32,
}

fn describe_spawn(session: SessionId, spawned: &SpawnedEvent) -> DataFields {
    let kind = spawned.spec.work.kind();
    let parent = spawned.owner.task().map(|no| TaskId { session, no });
    let client = spawned.client.as_ref().map(|client| client.name.to_string());
    let data = DataFields::default()
        .with("address", format!("{kind}:{}", spawned.no))
        .with("kind", kind.to_string())
        .with_some("name", spawned.spec.name.as_ref().map(|name| name.as_str()))
        .with_text("description", Some(&spawned.spec.work.description()))
        .with_some("parent", parent)
        .with_some("client", client);
    match &spawned.queued {
        Some(reason) => with_queue_reason(data, session, reason),
        None => data,
    }
}

fn with_queue_reason(data: DataFields, session: SessionId, reason: &QueueReason) -> DataFields {
    match reason {
        QueueReason::RunningLimit(holder) => {
            let holder = holder.task().map(|no| TaskId { session, no });
            data.with("reason", "running_limit").with_some("holder", holder)
        }
        QueueReason::RuntimeLimit => data.with("reason", "runtime_limit"),
        QueueReason::Backoff { until } => {
            data.with("reason", "backoff").with("until", ApiTime(*until))
        }
        QueueReason::NoPerformer { reason } => {
            data.with("reason", "no_performer").with_text("text", Some(reason))
        }
    }
}

fn with_verdict(data: DataFields, verdict: &ApprovalVerdict) -> DataFields {
    match verdict {
        ApprovalVerdict::AllowOnce => data.with("verdict", "allow_once"),
        ApprovalVerdict::AllowAlways { rule } => {
            let rule = rule.as_ref().map(ToString::to_string);
            data.with("verdict", "allow_always").with_text("rule", rule.as_deref())
        }
        ApprovalVerdict::Deny { reason } => {
            data.with("verdict", "deny").with_text("reason", Some(reason))
        }
    }
}

fn describe_grant(grant: &ApprovalGrant) -> DataFields {
    let data = DataFields::default()
        .with("grant", grant.no)
        .with_text("directory", grant.directory.as_deref())
        .with_some("client", grant.client.as_ref().map(ToString::to_string));
    match &grant.scope {
        GrantScope::Rule(rule) => data.with_text("rule", Some(&rule.to_string())),
        GrantScope::Call { tool, .. } => data.with("tool", tool),
    }
}

fn describe_message(session: SessionId, message: &Message) -> DataFields {
    let task = |no: TaskNo| TaskId { session, no };
    let from = match message.from {
        MessageSender::Operator => "operator",
        MessageSender::Client => "client",
        MessageSender::Parent(_) => "parent",
        MessageSender::Child(_) => "child",
        MessageSender::Runtime => "runtime",
    };
    let question = match message.purpose {
        MessagePurpose::Note => None,
        MessagePurpose::Question(call) => Some(call.0),
    };
    DataFields::default()
        .with("message", message.no.0)
        .with("from", from)
        .with_some("from_task", message.from.task().map(task))
        .with_some("to_task", message.to.task().map(task))
        .with_text("name", message.name.as_deref())
        .with_some("question", question)
        .with_some("reply_to", message.reply_to.map(|no| no.0))
        .with("interrupt", message.interrupt)
        .with("closes_input", message.closes_input)
}

fn with_stop_cause(data: DataFields, cause: &StopCause) -> DataFields {
    match cause {
        StopCause::Order(order) => data
            .with("by", initiator_code(&order.by))
            .with_text("reason", order.reason.as_deref())
            .with_some("grace_ms", order.grace.map(|grace| grace.0)),
        StopCause::Failure(failure) => {
            data.with("code", failure_code(failure)).with_text("reason", Some(&failure.to_string()))
        }
    }
}

fn with_outcome(data: DataFields, outcome: &Outcome) -> DataFields {
    let mut body = OutcomeBody::of(outcome);
    body.text = truncate_chars(&body.text, TEXT_CHARS_MAX);
    data.with("outcome", body)
}

/// A deserializer that only notes the names of an enum's variants.
struct VariantNames<'a> {
    variants: &'a mut &'static [&'static str],
}

#[derive(Debug)]
struct NamesNoted;

impl fmt::Display for NamesNoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the names were noted")
    }
}

impl std::error::Error for NamesNoted {}

impl serde::de::Error for NamesNoted {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl<'de> Deserializer<'de> for VariantNames<'_> {
    type Error = NamesNoted;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NamesNoted> {
        Err(NamesNoted)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, NamesNoted> {
        *self.variants = variants;
        Err(NamesNoted)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests;
