//! Calls of a task and their recorded completions.
//!
//! A call has an index in its task's journal. It completes at once, or it is *parked* on a
//! condition until something completes it. Completions are journal entries, so a task that is
//! entered again gets the same ones in the same order.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::{ApprovalRequest, ApprovalVerdict};
use crate::entry_label::EntryLabel;
use crate::error_details::ErrorDetails;
use crate::ids::{CallIndex, MessageNo, Millis, RunNo, Seq, TaskNo, Time};
use crate::json::Json;
use crate::message::Message;
use crate::name::TaskName;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::work::TaskKind;

/// A call that waits for its completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedCall {
    pub index: CallIndex,
    pub condition: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Condition {
    Tasks(TasksCondition),
    /// The oldest unread message, or the oldest of a name. The other messages stay in the inbox.
    Message {
        until: Option<Time>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<Arc<str>>,
    },
    /// All messages in the task's inbox, at least one.
    Messages,
    /// An item in the task's inbox: a message or a child's result.
    Inbox,
    Timer {
        until: Time,
    },
    /// The pause before a failed call is made again.
    Retry(Box<RetryPause>),
    /// A question to the parent or the operator.
    Question {
        question: Json,
    },
    /// An approval of a tool call by the operator or the client that started the task.
    Approval {
        request: Arc<ApprovalRequest>,
        since: Time,
    },
    /// A tool that the client executes.
    ClientTool {
        request: Json,
    },
}

/// The pause between two attempts of one call. The call keeps its index: each failed attempt and the
/// result are journal entries of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPause {
    /// The label of the call that is made again.
    pub label: EntryLabel,
    /// The number of the attempt that failed, from 1.
    pub attempt: u32,
    /// The error of that attempt.
    pub error: ErrorDetails,
    pub until: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksCondition {
    /// In ascending order.
    pub tasks: Arc<[TaskNo]>,
    pub mode: WaitMode,
    pub until: Option<Time>,
    /// True if a message completes the wait too.
    pub interruptible: bool,
    /// True if the tasks are awaited until they are ready. Nothing is consumed then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub until_ready: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitMode {
    Any,
    All,
}

impl Condition {
    /// Returns the time at which the clock completes the condition.
    pub fn until(&self) -> Option<Time> {
        match self {
            Self::Tasks(tasks) => tasks.until,
            Self::Message { until, .. } => *until,
            Self::Timer { until } => Some(*until),
            Self::Retry(pause) => Some(pause.until),
            Self::Messages
            | Self::Inbox
            | Self::Question { .. }
            | Self::Approval { .. }
            | Self::ClientTool { .. } => None,
        }
    }

    /// Returns the label of the call in the journal.
    pub fn label(&self) -> EntryLabel {
        match self {
            Self::Tasks(_) => EntryLabel::Wait,
            Self::Message { .. } | Self::Messages => EntryLabel::Receive,
            Self::Inbox => EntryLabel::Inbox,
            Self::Timer { .. } => EntryLabel::Sleep,
            Self::Retry(pause) => pause.label.clone(),
            Self::Question { .. } => EntryLabel::Ask,
            Self::Approval { .. } => EntryLabel::Approve,
            Self::ClientTool { .. } => EntryLabel::ClientTool,
        }
    }
}

/// A condition as a performer requests it: times are durations, and tasks are not yet checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionRequest {
    Tasks {
        tasks: Vec<TaskNo>,
        mode: WaitMode,
        timeout: Option<Millis>,
        interruptible: bool,
    },
    /// A wait until tasks with a readiness check are ready, or have ended before.
    Ready {
        tasks: Vec<TaskNo>,
        mode: WaitMode,
        timeout: Option<Millis>,
        interruptible: bool,
    },
    Message {
        timeout: Option<Millis>,
        name: Option<Arc<str>>,
    },
    Messages,
    Inbox,
    Timer {
        duration: Millis,
    },
    /// A pause after attempt number `attempt` of the call `label` failed.
    Retry {
        label: EntryLabel,
        attempt: u32,
        error: ErrorDetails,
        pause: Millis,
    },
    Question {
        question: Json,
    },
    Approval {
        request: Arc<ApprovalRequest>,
    },
    ClientTool {
        request: Json,
    },
}

impl ConditionRequest {
    /// Returns the label of the call in the journal.
    pub fn label(&self) -> EntryLabel {
        match self {
            Self::Tasks { .. } | Self::Ready { .. } => EntryLabel::Wait,
            Self::Message { .. } | Self::Messages => EntryLabel::Receive,
            Self::Inbox => EntryLabel::Inbox,
            Self::Timer { .. } => EntryLabel::Sleep,
            Self::Retry { label, .. } => label.clone(),
            Self::Question { .. } => EntryLabel::Ask,
            Self::Approval { .. } => EntryLabel::Approve,
            Self::ClientTool { .. } => EntryLabel::ClientTool,
        }
    }
}

/// The recorded result of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallCompletion {
    /// The value that a step returned.
    Value(Json),
    /// The error with which a step failed.
    Error(ErrorDetails),
    /// An attempt of the call failed, and the pause before the next one is over.
    Retried {
        attempt: u32,
        error: ErrorDetails,
    },
    Spawned(SpawnedTask),
    Sent(Vec<MessageNo>),
    /// The outcomes of the awaited runs.
    Results(Vec<RunResult>),
    /// The readiness of the awaited tasks. Nothing was consumed.
    Readiness(Vec<TaskReadiness>),
    /// A message arrived before the awaited runs ended. Nothing was consumed.
    Interrupted,
    Message(Arc<Message>),
    /// Messages in order.
    Messages(Vec<Arc<Message>>),
    /// The inbox: messages in order, and results of children.
    Inbox(InboxBatch),
    /// The time elapsed. Nothing was consumed.
    Elapsed,
    Reply(Json),
    Verdict(ApprovalVerdict),
    /// The call was refused and had no effect.
    Refused(Refusal),
    /// The caller dropped the call before it completed.
    Abandoned,
}

/// The inbox items that a task takes before it continues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxBatch {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Arc<Message>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<RunResult>,
}

/// A task as its spawner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnedTask {
    pub no: TaskNo,
    pub run: RunNo,
    pub kind: TaskKind,
    /// True if the task existed already: same key, same request.
    pub existing: bool,
}

/// The result of a run on its way to its waiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    pub no: TaskNo,
    pub run: RunNo,
    pub kind: TaskKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<TaskName>,
    pub outcome: Arc<Outcome>,
    pub ended_at: Time,
    /// True if it had been delivered before.
    pub collected_before: bool,
}

/// The readiness of a task after a wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReadiness {
    pub no: TaskNo,
    /// The time at which its latest run became ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Time>,
    /// The result of a run that has ended, which stays for its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RunResult>,
}

/// A journal entry with the number of its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEntry {
    pub no: TaskNo,
    pub entry: JournalEntry,
}

/// One entry of a task's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalEntry {
    pub index: CallIndex,
    /// The completion order. Replay follows it.
    pub order: Seq,
    /// The label of the call, to detect a program that makes a different call when it is entered
    /// again.
    pub label: EntryLabel,
    pub completion: Arc<CallCompletion>,
}
