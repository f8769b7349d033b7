//! `follow_output`: sends a process's output as it is written.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use brigade_process::output::{PagePiece, StdStream, ViewPage};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::read_output::{OutputOffset, StreamSelection};
use crate::call::Call;
use crate::task_target::TaskTarget;

/// The output to follow, until its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FollowOutputRequest {
    pub target: TaskTarget,
    #[serde(default)]
    pub streams: StreamSelection,
    #[serde(default)]
    pub from: OutputOffset,
}

/// A part of a process's output. Positions count all output, also bytes that are no longer stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPageItem {
    pub from: u64,
    pub next: u64,
    pub total: u64,
    pub pieces: Vec<OutputPiece>,
    /// Bytes that were lost to a full disk. Their positions are not known.
    #[serde(default)]
    pub unwritten: u64,
    /// No output follows.
    pub ended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputPiece {
    Stdout(Base64Bytes),
    Stderr(Base64Bytes),
    /// A number of bytes that are no longer stored.
    Cut(u64),
}

/// Arbitrary bytes, in JSON as base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base64Bytes(pub Vec<u8>);

impl OutputPageItem {
    pub fn of(page: &ViewPage) -> Self {
        let pieces = page.pieces.iter().map(|piece| match piece {
            PagePiece::Bytes { stream: StdStream::Stdout, bytes, .. } => {
                OutputPiece::Stdout(Base64Bytes(bytes.clone()))
            }
            PagePiece::Bytes { stream: StdStream::Stderr, bytes, .. } => {
                OutputPiece::Stderr(Base64Bytes(bytes.clone()))
            }
            PagePiece::Dropped { bytes } => OutputPiece::Cut(*bytes),
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

    /// Returns the page as text, with a marker for each dropped part.
    pub fn text(&self) -> String {
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            match piece {
                OutputPiece::Stdout(Base64Bytes(part)) | OutputPiece::Stderr(Base64Bytes(part)) => {
                    bytes.extend_from_slice(part);
                }
                OutputPiece::Cut(cut) => {
                    bytes
                        .extend_from_slice(format!("\n[... {cut} bytes dropped ...]\n").as_bytes());
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Serialize for Base64Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl Call for FollowOutputRequest {
    type Reply = ();
    type Item = OutputPageItem;
}
