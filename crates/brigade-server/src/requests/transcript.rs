//! What an agent has said and done.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::{Desk, Target};

/// The most that one answer has of it.
const BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transcript {
    pub target: Target,
    /// Bytes of the text.
    #[serde(default)]
    pub from: u64,
    #[serde(default)]
    pub max_bytes: Option<usize>,
}

/// A part of it; of other work, nothing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Said {
    pub text: String,
    pub next: u64,
    pub total: u64,
}

impl Ask for Transcript {
    type Done = Option<Said>;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<Option<Said>, Refusal> {
        let found = desk.find(&self.target).await?;
        let Some(text) = found.session.transcript(found.task_ref()).await? else {
            return Ok(None);
        };
        let most = self.max_bytes.unwrap_or(BYTES_MAX).min(BYTES_MAX);
        let from = usize::try_from(self.from).unwrap_or(usize::MAX).min(text.len());
        let from = text.ceil_char_boundary(from);
        let next = text.floor_char_boundary((from + most).min(text.len())).max(from);
        let part = text[from..next].to_owned();
        Ok(Some(Said { text: part, next: next as u64, total: text.len() as u64 }))
    }
}
