//! `follow_output`: sends a process's output as it is written.

use brigade_model::refusal::Refusal;
use brigade_protocol::requests::{FollowOutputRequest, OutputPageItem};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for FollowOutputRequest {
    async fn handle(
        self,
        context: &RequestContext,
        items: &ItemSender<OutputPageItem>,
    ) -> Result<(), Refusal> {
        let found = context.find_task(&self.target).await?;
        let view = self.streams.into();
        let mut follow =
            found.session.follow_output(found.task_ref(), view, self.from.into()).await?;
        while let Some(page) = follow.next().await? {
            items.send(&OutputPageItem::of(&page)).await?;
        }
        Ok(())
    }
}
