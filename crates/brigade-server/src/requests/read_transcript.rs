//! `read_transcript`: reads an agent's transcript as text.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{ReadTranscriptRequest, TranscriptPage};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

/// The maximum size of one reply.
const TRANSCRIPT_BYTES_MAX: usize = 4 * 1024 * 1024;

impl RequestHandler for ReadTranscriptRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Option<TranscriptPage>, Refusal> {
        let found = context.find_task(&self.target).await?;
        let Some(text) = found.session.transcript(found.task_ref()).await? else {
            return Ok(None);
        };
        let max_bytes = self.max_bytes.unwrap_or(TRANSCRIPT_BYTES_MAX).min(TRANSCRIPT_BYTES_MAX);
        let from = usize::try_from(self.from).unwrap_or(usize::MAX).min(text.len());
        let from = text.ceil_char_boundary(from);
        let next = text.floor_char_boundary((from + max_bytes).min(text.len())).max(from);
        let part = text[from..next].to_owned();
        Ok(Some(TranscriptPage { text: part, next: next as u64, total: text.len() as u64 }))
    }
}
