//! `resume`: starts the next run of an ended task.

use brigade_model::limits::Limits;
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, TaskTarget};
use crate::task_info::TaskInfo;

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

    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<TaskInfo, Refusal> {
        let found = context.find_task(&self.target).await?;
        found.session.resume(found.no, self.limits).await?;
        let (no, row) = found.session.get(found.no).await?;
        Ok(TaskInfo::of(&found.session.row().name, no, &row))
    }
}
