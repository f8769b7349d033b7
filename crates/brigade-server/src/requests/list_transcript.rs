//! `list_transcript`: reads an agent's transcript as items, page by page.

use brigade_agent::transcript_page::TranscriptPlace;
use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{
    ListTranscriptRequest, ListedTranscriptItem, TranscriptItemsReply,
};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

const PAGE_ITEMS: usize = 100;

impl RequestHandler for ListTranscriptRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Option<TranscriptItemsReply>, Refusal> {
        let start: Option<TranscriptPlace> = self.page.as_deref().map(str::parse).transpose()?;
        let found = context.find_task(&self.target).await?;
        let page = found.session.transcript_page(found.task_ref(), start, PAGE_ITEMS).await?;
        Ok(page.map(|page| TranscriptItemsReply {
            items: page.items.into_iter().map(ListedTranscriptItem::of).collect(),
            next: page.next.map(|next| next.to_string()),
        }))
    }
}
