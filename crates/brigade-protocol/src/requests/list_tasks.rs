//! `list_tasks`: lists the tasks of one session or of all.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::task_info::TaskInfo;

/// Selects tasks, which are listed without their results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListTasksRequest {
    /// The session; `None` is all open sessions. For the operator, `include_ended` adds closed
    /// ones.
    #[serde(default)]
    pub session: Option<String>,
    /// Includes ended tasks whose results were collected.
    #[serde(default)]
    pub include_ended: bool,
    /// The maximum number of tasks; the newest are selected.
    #[serde(default)]
    pub limit: Option<usize>,
}

impl Call for ListTasksRequest {
    type Reply = Vec<TaskInfo>;
    type Item = NoItems;
}
