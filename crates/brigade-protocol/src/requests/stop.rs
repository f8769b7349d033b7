//! `stop`: stops a task and its descendants.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::task_info::TaskInfo;
use crate::task_target::TaskTarget;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StopRequest {
    pub target: TaskTarget,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub grace_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StopReply {
    /// The task after the request.
    pub task: TaskInfo,
    /// The number of tasks that are stopped.
    pub task_count: u64,
    /// The task was already stopping or had ended.
    pub already: bool,
}

impl Call for StopRequest {
    type Reply = StopReply;
    type Item = NoItems;
}
