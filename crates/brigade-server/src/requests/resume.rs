//! Opens the next run of a task that has ended.

use brigade_model::limits::Limits;
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, TaskTarget};
use crate::task_info::TaskInfo;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResumeRequest {
    pub target: TaskTarget,
    /// Instead of what it had, as far as they say anything.
    #[serde(default)]
    pub limits: Option<Limits>,
}

impl Call for ResumeRequest {
    type Reply = TaskInfo;
    type Item = NoItems;

    async fn handle(
        self,
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<TaskInfo, Refusal> {
        let found = desk.find_task(&self.target).await?;
        found.session.resume(found.no, self.limits).await?;
        let (no, row) = found.session.get(found.no).await?;
        Ok(TaskInfo::of(&found.session.row().name, no, &row))
    }
}
