//! `read_output`: reads a page of a process's output.

use brigade_model::refusal::Refusal;
use brigade_process::output;
use serde::{Deserialize, Serialize};

use super::OutputPageItem;
use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, TaskTarget};
use crate::task_info::output_unreadable;

/// The maximum size of a page, so that a reply fits a line.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadOutputRequest {
    pub target: TaskTarget,
    #[serde(default)]
    pub streams: StreamSelection,
    #[serde(default)]
    pub from: OutputOffset,
    pub max_bytes: usize,
}

/// The selected streams of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamSelection {
    Stdout,
    Stderr,
    /// Both streams, in the order of their output.
    #[default]
    Combined,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputOffset {
    At(u64),
    /// A number of bytes before the end.
    FromEnd(u64),
}

impl Default for OutputOffset {
    fn default() -> Self {
        Self::At(0)
    }
}

impl From<StreamSelection> for output::OutputView {
    fn from(streams: StreamSelection) -> Self {
        match streams {
            StreamSelection::Stdout => Self::Stdout,
            StreamSelection::Stderr => Self::Stderr,
            StreamSelection::Combined => Self::Combined,
        }
    }
}

impl From<OutputOffset> for output::ReadStart {
    fn from(from: OutputOffset) -> Self {
        match from {
            OutputOffset::At(position) => Self::At(position),
            OutputOffset::FromEnd(bytes) => Self::FromEnd(bytes),
        }
    }
}

impl Call for ReadOutputRequest {
    type Reply = OutputPageItem;
    type Item = NoItems;

    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<OutputPageItem, Refusal> {
        let found = context.find_task(&self.target).await?;
        let output = found.session.output(found.task_ref()).await?;
        let read = output::OutputRead {
            view: self.streams.into(),
            start: self.from.into(),
            max_bytes: self.max_bytes.min(PAGE_BYTES_MAX),
        };
        let page = tokio::task::spawn_blocking(move || output.read(read)).await;
        let page = page.map_err(|e| Refusal::internal(e.to_string()))?;
        Ok(OutputPageItem::of(&page.map_err(|e| output_unreadable(&e))?))
    }
}
