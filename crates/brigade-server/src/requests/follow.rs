//! A command's output as it comes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use brigade_model::refusal::Refusal;
use brigade_process::output::{Page, Piece, Stream};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::read::{Beginning, Which};
use crate::ask::{Ask, Items};
use crate::desk::{Desk, Target};
use crate::info::unreadable;

/// Ends when the output does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Follow {
    pub target: Target,
    #[serde(default)]
    pub which: Which,
    #[serde(default)]
    pub from: Beginning,
}

/// A part of a command's output. Positions count what was produced, kept or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPage {
    pub from: u64,
    pub next: u64,
    pub total: u64,
    pub pieces: Vec<OutputPiece>,
    /// Bytes that a full disk did not take, at places that are not known.
    #[serde(default)]
    pub unwritten: u64,
    /// Nothing follows.
    pub ended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputPiece {
    Stdout(Bytes),
    Stderr(Bytes),
    /// So many bytes are not kept.
    Cut(u64),
}

/// Bytes that may be anything; in JSON as base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl OutputPage {
    pub fn of(page: &Page) -> Self {
        let pieces = page.pieces.iter().map(|piece| match piece {
            Piece::Bytes { stream: Stream::Stdout, bytes, .. } => {
                OutputPiece::Stdout(Bytes(bytes.clone()))
            }
            Piece::Bytes { stream: Stream::Stderr, bytes, .. } => {
                OutputPiece::Stderr(Bytes(bytes.clone()))
            }
            Piece::Cut { bytes } => OutputPiece::Cut(*bytes),
        });
        Self {
            from: page.from,
            next: page.next,
            total: page.total,
            pieces: pieces.collect(),
            unwritten: page.unwritten,
            ended: page.ended,
        }
    }

    /// All of it as text, the cuts marked.
    pub fn text(&self) -> String {
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            match piece {
                OutputPiece::Stdout(Bytes(part)) | OutputPiece::Stderr(Bytes(part)) => {
                    bytes.extend_from_slice(part);
                }
                OutputPiece::Cut(cut) => {
                    bytes.extend_from_slice(format!("\n[... {cut} bytes cut ...]\n").as_bytes());
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl Ask for Follow {
    type Done = ();
    type Item = OutputPage;

    async fn answer(self, desk: &Desk, items: &Items<OutputPage>) -> Result<(), Refusal> {
        let found = desk.find(&self.target).await?;
        let (which, from) = (self.which.into(), self.from.into());
        let mut follow = found.session.follow(found.task_ref(), which, from).await?;
        while let Some(page) = follow.next().await.map_err(|e| unreadable(&e))? {
            items.send(&OutputPage::of(&page)).await?;
        }
        Ok(())
    }
}
