//! Waits for tasks.

use brigade_model::call::WaitMode;
use brigade_model::ids::TaskNo;
use brigade_model::json::Json;
use brigade_model::outcome::Outcome;
use brigade_model::task::TaskRow;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::approval::PendingApprovalBody;
use super::task::TaskSession;
use super::{OutcomeBody, TaskBody, TaskId};
use crate::requests::WaitUntil;
use crate::task_info::TaskInfo;

/// A wait for tasks of one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WaitRequest)]
pub struct WaitRequestBody {
    /// From 1 to 1000 tasks.
    #[schema(min_items = 1, max_items = 1000)]
    pub tasks: Vec<TaskId>,
    #[serde(default)]
    pub mode: WaitModeBody,
    #[serde(default)]
    pub until: WaitUntilBody,
}

/// `any` ends with the first of the tasks, `all` with the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WaitMode)]
pub enum WaitModeBody {
    #[default]
    Any,
    All,
}

/// The event that ends a wait: the end of tasks, or also a question or approval of one; or their
/// readiness, or the end of one that was not ready before. A wait for readiness collects nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WaitUntil)]
pub enum WaitUntilBody {
    #[default]
    Ended,
    EndedOrInput,
    Ready,
}

/// The result of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = WaitResult)]
pub struct WaitResultBody {
    /// False after a timeout. Then nothing was collected.
    pub done: bool,
    /// The ended tasks, in the order of the request.
    pub ended: Vec<EndedTaskBody>,
    pub running: Vec<TaskBody>,
    /// The tasks that are ready, after a wait until `ready`. Those that have ended since are here too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ready: Vec<TaskBody>,
    /// The approvals that these tasks and their descendants wait for, if they can end the wait.
    pub pending_approvals: Vec<PendingApprovalBody>,
}

/// An ended task, or one of its ended runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = EndedTask)]
pub struct EndedTaskBody {
    #[serde(flatten)]
    pub task: TaskBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeBody>,
    /// The result of a task that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub result: Option<Json>,
    /// The partial result of a task that did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub partial: Option<Json>,
    /// The result was collected before this wait.
    pub collected_before: bool,
}

impl EndedTaskBody {
    pub fn of(session: &TaskSession, no: TaskNo, row: &TaskRow, info: TaskInfo) -> Self {
        let is_success = matches!(info.outcome, Some(Outcome::Succeeded { .. }));
        Self {
            outcome: info.outcome.as_ref().map(OutcomeBody::of),
            result: info.result.clone().filter(|_| is_success),
            partial: info.result.clone().filter(|_| !is_success),
            collected_before: info.collected_before,
            task: TaskBody::from_info(session, no, row, info),
        }
    }
}

impl From<WaitModeBody> for WaitMode {
    fn from(mode: WaitModeBody) -> Self {
        match mode {
            WaitModeBody::Any => Self::Any,
            WaitModeBody::All => Self::All,
        }
    }
}

impl From<WaitUntilBody> for WaitUntil {
    fn from(until: WaitUntilBody) -> Self {
        match until {
            WaitUntilBody::Ended => Self::Ended,
            WaitUntilBody::EndedOrInput => Self::EndedOrInput,
            WaitUntilBody::Ready => Self::Ready,
        }
    }
}
