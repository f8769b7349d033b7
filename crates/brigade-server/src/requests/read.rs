//! A page of a command's output.

use brigade_model::refusal::Refusal;
use brigade_process::output;
use serde::{Deserialize, Serialize};

use super::OutputPage;
use crate::ask::{Ask, Items, Never};
use crate::desk::{Desk, Target};
use crate::info::unreadable;

/// The most that one page may have, so that an answer fits a line.
const PAGE_MAX: usize = 4 * 1024 * 1024;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Read {
    pub target: Target,
    #[serde(default)]
    pub which: Which,
    #[serde(default)]
    pub from: Beginning,
    pub max_bytes: usize,
}

/// Which of the streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    Stdout,
    Stderr,
    /// Both in the order in which they came.
    #[default]
    Combined,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Beginning {
    At(u64),
    /// So many bytes before the end.
    End(u64),
}

impl Default for Beginning {
    fn default() -> Self {
        Self::At(0)
    }
}

impl From<Which> for output::Which {
    fn from(which: Which) -> Self {
        match which {
            Which::Stdout => Self::Stdout,
            Which::Stderr => Self::Stderr,
            Which::Combined => Self::Combined,
        }
    }
}

impl From<Beginning> for output::Start {
    fn from(from: Beginning) -> Self {
        match from {
            Beginning::At(position) => Self::At(position),
            Beginning::End(bytes) => Self::FromEnd(bytes),
        }
    }
}

impl Ask for Read {
    type Done = OutputPage;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<OutputPage, Refusal> {
        let found = desk.find(&self.target).await?;
        let output = found.session.output(found.task_ref()).await?;
        let (which, from) = (self.which.into(), self.from.into());
        let read = output::Read { which, from, max_bytes: self.max_bytes.min(PAGE_MAX) };
        let page = tokio::task::spawn_blocking(move || output.read(read)).await;
        let page = page.map_err(|e| Refusal::internal(e.to_string()))?;
        Ok(OutputPage::of(&page.map_err(|e| unreadable(&e))?))
    }
}
