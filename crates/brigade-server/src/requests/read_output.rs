//! `read_output`: reads a page of a process's output.

use brigade_model::refusal::Refusal;
use brigade_process::output::OutputRead;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{OutputPageItem, ReadOutputRequest};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

/// The maximum size of a page, so that a reply fits a line.
pub(crate) const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

impl RequestHandler for ReadOutputRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<OutputPageItem, Refusal> {
        let found = context.find_task(&self.target).await?;
        let output = found.session.task_output(found.task_ref()).await?;
        let read = OutputRead {
            view: self.streams.into(),
            start: self.from.into(),
            max_bytes: self.max_bytes.min(PAGE_BYTES_MAX),
        };
        Ok(OutputPageItem::of(&output.read(read).await?))
    }
}
