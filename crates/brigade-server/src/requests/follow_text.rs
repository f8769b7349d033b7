//! `follow_text`: sends the output of an agent's model as it is produced.

use brigade_model::refusal::Refusal;
use brigade_protocol::requests::{AgentOutputItem, FollowTextRequest};
use futures_util::TryStreamExt;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for FollowTextRequest {
    async fn handle(
        self,
        context: &RequestContext,
        items: &ItemSender<AgentOutputItem>,
    ) -> Result<(), Refusal> {
        let found = context.find_task(&self.target).await?;
        let task = found.session.task(found.no).await?;
        let mut outputs = task.text();
        while let Some(output) = outputs.try_next().await? {
            if let Some(item) = AgentOutputItem::of(output) {
                items.send(&item).await?;
            }
        }
        Ok(())
    }
}
