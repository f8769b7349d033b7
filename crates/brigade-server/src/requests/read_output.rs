//! A page of a command's output.

use brigade_model::refusal::Refusal;
use brigade_process::output;
use serde::{Deserialize, Serialize};

use super::OutputPageItem;
use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, TaskTarget};
use crate::task_info::output_unreadable;

/// The most that one page may have, so that an answer fits a line.
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

/// Which of the streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamSelection {
    Stdout,
    Stderr,
    /// Both in the order in which they came.
    #[default]
    Combined,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputOffset {
    At(u64),
    /// So many bytes before the end.
    FromEnd(u64),
}

impl Default for OutputOffset {
    fn default() -> Self {
        Self::At(0)
    }
}

impl From<StreamSelection> for output::OutputView {
    fn from(which: StreamSelection) -> Self {
        match which {
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
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<OutputPageItem, Refusal> {
        let found = desk.find_task(&self.target).await?;
        let output = found.session.output(found.task_ref()).await?;
        let (which, from) = (self.streams.into(), self.from.into());
        let read = output::OutputRead {
            view: which,
            start: from,
            max_bytes: self.max_bytes.min(PAGE_BYTES_MAX),
        };
        let page = tokio::task::spawn_blocking(move || output.read(read)).await;
        let page = page.map_err(|e| Refusal::internal(e.to_string()))?;
        Ok(OutputPageItem::of(&page.map_err(|e| output_unreadable(&e))?))
    }
}
