//! `show_task`: shows one task with all details.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::task_info::TaskInfo;
use crate::task_target::TaskTarget;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowTaskRequest {
    pub target: TaskTarget,
}

impl Call for ShowTaskRequest {
    type Reply = TaskInfo;
    type Item = NoItems;
}
