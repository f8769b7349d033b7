//! The output of processes.

use brigade_process::output::{PagePiece, StdStream, ViewPage};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::requests::{Base64Bytes, MatchedLineItem, SearchOutputReply};

/// A part of the output. Positions count all bytes, also those that are no longer stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = OutputPage)]
pub struct OutputPageBody {
    /// The position of the first byte.
    pub from: u64,
    /// The position of the next page.
    pub next: u64,
    /// All bytes that were written so far.
    pub total: u64,
    pub pieces: Vec<OutputPieceBody>,
    /// Bytes that were lost to a full disk. Their positions are not known.
    pub unwritten: u64,
    /// No output follows.
    pub ended: bool,
}

/// Bytes of one stream, or a number of bytes that are no longer stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = OutputPiece)]
pub enum OutputPieceBody {
    Text {
        stream: StreamBody,
        text: String,
    },
    /// Bytes that are not UTF-8.
    Bytes {
        stream: StreamBody,
        #[schema(value_type = String)]
        base64: Base64Bytes,
    },
    Dropped {
        dropped: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = StdStream)]
pub enum StreamBody {
    Stdout,
    Stderr,
}

/// The bytes of an output.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(as = OutputBytes, value_type = String, format = Binary)]
pub struct OutputBytesBody(pub Vec<u8>);

/// Lines that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = OutputSearch)]
pub struct OutputSearchBody {
    pub lines: Vec<OutputLineBody>,
    /// More lines may match: there are too many, or the search took too long.
    pub has_more: bool,
    /// The parameter `page` of the next search, if there may be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page: Option<String>,
    /// Bytes that were not searched because they are no longer stored.
    pub dropped_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = OutputLine)]
pub struct OutputLineBody {
    /// The position of the line.
    pub offset: u64,
    pub stream: StreamBody,
    pub text: String,
}

impl OutputPageBody {
    /// Returns the page. A character that the page cuts off is left to the next page.
    pub fn of(page: ViewPage) -> Self {
        let ViewPage { from, mut next, total, unwritten, ended, pieces } = page;
        let mut bodies = Vec::with_capacity(pieces.len());
        let last = pieces.len().saturating_sub(1);
        for (index, piece) in pieces.into_iter().enumerate() {
            let (stream, mut bytes) = match piece {
                PagePiece::Bytes { stream, bytes, .. } => (StreamBody::from(stream), bytes),
                PagePiece::Dropped { bytes } => {
                    bodies.push(OutputPieceBody::Dropped { dropped: bytes });
                    continue;
                }
            };
            if index == last && !ended {
                let whole = bytes.len() - incomplete_bytes(&bytes);
                next -= (bytes.len() - whole) as u64;
                bytes.truncate(whole);
            }
            match String::from_utf8(bytes) {
                Ok(text) if text.is_empty() => {}
                Ok(text) => bodies.push(OutputPieceBody::Text { stream, text }),
                Err(error) => {
                    let base64 = Base64Bytes(error.into_bytes());
                    bodies.push(OutputPieceBody::Bytes { stream, base64 });
                }
            }
        }
        Self { from, next, total, pieces: bodies, unwritten, ended }
    }
}

/// Returns the number of bytes of a character at the end that is not complete.
fn incomplete_bytes(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.len() - error.valid_up_to(),
        _ => 0,
    }
}

impl From<StdStream> for StreamBody {
    fn from(stream: StdStream) -> Self {
        match stream {
            StdStream::Stdout => Self::Stdout,
            StdStream::Stderr => Self::Stderr,
        }
    }
}

impl From<SearchOutputReply> for OutputSearchBody {
    fn from(reply: SearchOutputReply) -> Self {
        let lines = reply.lines.into_iter().map(|line| {
            let MatchedLineItem { position, stderr, text } = line;
            let stream = if stderr { StreamBody::Stderr } else { StreamBody::Stdout };
            OutputLineBody { offset: position, stream, text }
        });
        Self {
            lines: lines.collect(),
            has_more: reply.has_more,
            next_page: reply.next.map(|next| next.to_string()),
            dropped_bytes: reply.dropped_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(bytes: &[u8], ended: bool) -> OutputPageBody {
        let piece = PagePiece::Bytes { stream: StdStream::Stdout, at: 0, bytes: bytes.to_vec() };
        let next = bytes.len() as u64;
        let total = next + 1;
        OutputPageBody::of(ViewPage {
            from: 0,
            next,
            pieces: vec![piece],
            total,
            unwritten: 0,
            ended,
        })
    }

    #[test]
    fn a_cut_character_is_left_to_the_next_page() {
        let cut = page("é".repeat(2).as_bytes().split_last().expect("bytes").1, false);
        let text = OutputPieceBody::Text { stream: StreamBody::Stdout, text: "é".to_owned() };
        assert_eq!(cut.pieces, [text]);
        assert_eq!(cut.next, 2);
        let bytes = [b'a', 0xff];
        let base64 = Base64Bytes(bytes.to_vec());
        let whole = OutputPieceBody::Bytes { stream: StreamBody::Stdout, base64 };
        assert_eq!(page(&bytes, false).pieces, std::slice::from_ref(&whole));
        assert_eq!(page(&[0xc3], true).next, 1, "nothing completes it");
    }
}
