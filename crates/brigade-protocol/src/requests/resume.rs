//! `resume`: starts the next run of an ended task.

use brigade_model::limits::Limits;
use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::task_info::TaskInfo;
use crate::task_target::TaskTarget;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResumeRequest {
    pub target: TaskTarget,
    /// Limits that replace the earlier ones. Omitted limits stay.
    #[serde(default)]
    pub limits: Option<Limits>,
}

impl Call for ResumeRequest {
    type Reply = TaskInfo;
    type Item = NoItems;
}
