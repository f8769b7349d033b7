//! `list_subtree`: lists a task and its descendants.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::task_info::TaskInfo;
use crate::task_target::TaskTarget;

/// Selects alive and ended tasks, without results, in the order of their start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListSubtreeRequest {
    pub target: TaskTarget,
}

impl Call for ListSubtreeRequest {
    type Reply = Vec<TaskInfo>;
    type Item = NoItems;
}
