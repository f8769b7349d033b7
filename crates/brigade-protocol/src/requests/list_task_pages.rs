//! `list_task_pages`: lists any number of tasks of one session or of all.

use serde::{Deserialize, Serialize};

use super::list_tasks::ListTasksRequest;
use crate::call::Call;
use crate::task_info::TaskInfo;

/// The same as [`ListTasksRequest`], sent in pages.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListTaskPagesRequest {
    #[serde(flatten)]
    pub list: ListTasksRequest,
}

impl Call for ListTaskPagesRequest {
    /// The number of tasks.
    type Reply = u64;
    type Item = Vec<TaskInfo>;
}
