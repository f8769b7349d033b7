//! `wait`: waits for tasks and returns their results.

use brigade_model::call::WaitMode;
use serde::{Deserialize, Serialize};

use super::PendingApprovalItem;
use crate::call::{Call, NoItems};
use crate::task_info::TaskInfo;

/// A wait for tasks of one session.
///
/// Only a client's wait collects results. The operator and processes of tasks read them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WaitRequest {
    /// The session of addresses that name none.
    pub session: String,
    /// Addresses or names. If empty, a client waits for its runs of this conversation, and of its
    /// conversations that have lapsed.
    #[serde(default)]
    pub tasks: Vec<String>,
    pub mode: WaitMode,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub until: WaitUntil,
}

/// The event that ends a wait before its timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitUntil {
    /// Any or all of the tasks have ended.
    #[default]
    Ended,
    /// The tasks have ended, or input is required: a task asks a question, or it or a descendant
    /// needs an approval. Then no result is collected, and that task is among the running ones.
    EndedOrInput,
    /// The tasks are ready, or have ended before. No result is collected.
    Ready,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WaitReply {
    /// The ended tasks, in the order in which they were named.
    pub ended: Vec<TaskInfo>,
    /// The tasks that still run: after an any-wait, a timeout, or a need of input.
    pub still_running: Vec<TaskInfo>,
    /// The tasks that are ready, after a wait for that. Those that have ended since are here too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ready: Vec<TaskInfo>,
    pub timed_out: bool,
    /// The pending approvals of these tasks and their descendants, if they can end the wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_approvals: Vec<PendingApprovalItem>,
}

impl Call for WaitRequest {
    type Reply = WaitReply;
    type Item = NoItems;
}
