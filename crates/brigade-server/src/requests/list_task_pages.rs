//! `list_task_pages`: lists any number of tasks of one session or of all.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::list_tasks::{ListTasksRequest, TaskPages};
use crate::call::{Call, ItemSender};
use crate::request_context::RequestContext;
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

    async fn handle(
        self,
        context: &RequestContext,
        items: &ItemSender<Vec<TaskInfo>>,
    ) -> Result<u64, Refusal> {
        let mut pages = TaskPages::new(self.list, context).await?;
        let mut count = 0;
        while let Some(page) = pages.next_page().await? {
            count += page.len() as u64;
            items.send(&page).await?;
        }
        Ok(count)
    }
}
