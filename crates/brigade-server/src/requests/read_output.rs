//! `read_output`: reads a page of a process's output.

use brigade_model::refusal::Refusal;
use brigade_process::output::{OutputRead, ProcessOutput, ViewPage};
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{OutputPageItem, ReadOutputRequest};

use crate::request_context::RequestContext;
use crate::request_handler::output_unreadable;
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
        let output = found.session.output(found.task_ref()).await?;
        let read = OutputRead {
            view: self.streams.into(),
            start: self.from.into(),
            max_bytes: self.max_bytes.min(PAGE_BYTES_MAX),
        };
        Ok(OutputPageItem::of(&read_page(output, read).await?))
    }
}

/// Reads a page of output without blocking this thread.
pub(crate) async fn read_page(
    output: ProcessOutput,
    read: OutputRead,
) -> Result<ViewPage, Refusal> {
    let page = tokio::task::spawn_blocking(move || output.read(read)).await;
    let page = page.map_err(|e| Refusal::internal(e.to_string()))?;
    page.map_err(|e| output_unreadable(&e))
}
