//! `list_task_pages`: lists any number of tasks of one session or of all.

use brigade_model::refusal::Refusal;
use brigade_protocol::requests::ListTaskPagesRequest;
use brigade_protocol::task_info::TaskInfo;

use super::list_tasks::TaskPages;
use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for ListTaskPagesRequest {
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
