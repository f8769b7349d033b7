//! Calls: what a task asked for and is told, each recorded once.
//!
//! A call has an index in its task's journal. It is either answered at once, or *parked* on a
//! condition until something answers it. Answers are journal rows, so a task that is entered again
//! is told the same things in the same order.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::{ApprovalRequest, ApprovalVerdict};
use crate::ids::{CallIndex, MessageNo, Millis, RunNo, Seq, TaskNo, Time};
use crate::json::Json;
use crate::message::Message;
use crate::name::TaskName;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::work::TaskKind;

/// A call that waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedCall {
    pub index: CallIndex,
    pub condition: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    Tasks(TasksCondition),
    Message {
        until: Option<Time>,
    },
    /// Anything that the task has not heard of: a message, or how a child ended.
    Inbox,
    Timer {
        until: Time,
    },
    /// A question to the parent or the operator.
    Question {
        question: Json,
    },
    /// Leave to do something; the operator gives it.
    Approval {
        request: Arc<ApprovalRequest>,
        since: Time,
    },
    /// A tool that the client runs.
    ClientTool {
        request: Json,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksCondition {
    /// In ascending order.
    pub tasks: Arc<[TaskNo]>,
    pub mode: WaitMode,
    pub until: Option<Time>,
    /// Whether a message answers the wait too.
    pub interruptible: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitMode {
    Any,
    All,
}

impl Condition {
    /// When it is answered by the clock, if nothing else did.
    pub fn until(&self) -> Option<Time> {
        match self {
            Self::Tasks(tasks) => tasks.until,
            Self::Message { until } => *until,
            Self::Timer { until } => Some(*until),
            Self::Inbox
            | Self::Question { .. }
            | Self::Approval { .. }
            | Self::ClientTool { .. } => None,
        }
    }

    /// The word under which the call is found again in a journal.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Tasks(_) => "wait",
            Self::Message { .. } => "receive",
            Self::Inbox => "news",
            Self::Timer { .. } => "sleep",
            Self::Question { .. } => "ask",
            Self::Approval { .. } => "approve",
            Self::ClientTool { .. } => "client tool",
        }
    }
}

/// A condition as a performer asks for it: times are spans, tasks are not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionRequest {
    Tasks { tasks: Vec<TaskNo>, mode: WaitMode, timeout: Option<Millis>, interruptible: bool },
    Message { patience: Option<Millis> },
    Inbox,
    Timer { duration: Millis },
    Question { question: Json },
    Approval { request: Arc<ApprovalRequest> },
    ClientTool { request: Json },
}

/// What a call was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallCompletion {
    /// What a step returned.
    Value(Json),
    /// What a step failed with.
    Error(Arc<str>),
    Spawned(SpawnedTask),
    Sent(Vec<MessageNo>),
    /// How the awaited runs ended.
    Results(Vec<RunResult>),
    /// A message came before the awaited runs ended. Nothing was consumed.
    Interrupted,
    Message(Arc<Message>),
    /// All that had come: messages in their order, and how children ended.
    Inbox(InboxBatch),
    /// The time was up, with nothing consumed.
    Elapsed,
    Reply(Json),
    Verdict(ApprovalVerdict),
    /// The call was not carried out.
    Refused(Refusal),
    /// The caller dropped the call before it was answered.
    Abandoned,
}

/// What a task is told before it goes on. It has taken it with that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxBatch {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Arc<Message>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<RunResult>,
}

/// A task as its spawner knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnedTask {
    pub no: TaskNo,
    pub run: RunNo,
    pub kind: TaskKind,
    /// It was there already: the same key, the same request.
    pub existing: bool,
}

/// A run's result on its way to whoever waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    pub no: TaskNo,
    pub run: RunNo,
    pub kind: TaskKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<TaskName>,
    pub outcome: Arc<Outcome>,
    pub ended_at: Time,
    /// It had been delivered before.
    pub collected_before: bool,
}

/// One row of a task's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalEntry {
    pub index: CallIndex,
    /// When it was answered, relative to the others: replay goes in this order.
    pub order: Seq,
    /// What was asked, to notice a program that asks something else when it is entered again.
    pub label: Arc<str>,
    pub completion: Arc<CallCompletion>,
}
