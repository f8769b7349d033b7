//! Output as text: UTF-8 where it is, U+FFFD where it is not, and a marker for each cut.

use std::io;

use super::{OutputRead, OutputView, PagePiece, ProcessOutput, ReadStart, StdStream, ViewPage};

/// Turns pages that follow each other into text without splitting a character at a border.
///
/// Each stream has its own unfinished character: what comes between from the other stream does not
/// break it, and it appears where it is completed.
#[derive(Clone, Debug, Default)]
pub struct TextDecoder {
    unfinished: [Vec<u8>; 2],
}

/// A page by itself as text.
pub fn page_text(page: &ViewPage) -> String {
    let mut decoder = TextDecoder::default();
    let mut text = decoder.decode_page(page);
    text.push_str(&decoder.finish());
    text
}

impl TextDecoder {
    /// The text of the page that follows the last one.
    pub fn decode_page(&mut self, page: &ViewPage) -> String {
        let mut text = String::new();
        for piece in &page.pieces {
            match piece {
                PagePiece::Bytes { stream, bytes, .. } => {
                    self.decode_bytes(*stream, bytes, &mut text)
                }
                PagePiece::Dropped { bytes } => {
                    self.flush(&mut text);
                    text.push_str(&format!("\n[... {bytes} bytes cut ...]\n"));
                }
            }
        }
        text
    }

    /// What was left of characters that were never completed.
    pub fn finish(mut self) -> String {
        let mut text = String::new();
        self.flush(&mut text);
        text
    }

    fn decode_bytes(&mut self, stream: StdStream, bytes: &[u8], text: &mut String) {
        let held = &mut self.unfinished[stream.index()];
        let joined;
        let bytes = if held.is_empty() {
            bytes
        } else {
            held.extend_from_slice(bytes);
            joined = std::mem::take(held);
            &joined
        };
        let (whole, rest) = bytes.split_at(bytes.len() - incomplete_character_bytes(bytes));
        text.push_str(&String::from_utf8_lossy(whole));
        held.extend_from_slice(rest);
    }

    fn flush(&mut self, text: &mut String) {
        for held in &mut self.unfinished {
            text.push_str(&String::from_utf8_lossy(held));
            held.clear();
        }
    }
}

/// Bytes at the end that begin a character which more bytes could complete.
pub(super) fn incomplete_character_bytes(bytes: &[u8]) -> usize {
    let last = &bytes[bytes.len().saturating_sub(3)..];
    (0..last.len())
        .find_map(|from| match std::str::from_utf8(&last[from..]) {
            Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => {
                Some(last.len() - from)
            }
            _ => None,
        })
        .unwrap_or(0)
}

pub(super) fn read_tail_text(output: &ProcessOutput, max_bytes: usize) -> io::Result<String> {
    // One byte more tells whether the rest begins a line.
    let reach = max_bytes.saturating_add(1);
    let from = ReadStart::FromEnd(reach as u64);
    let mut page =
        output.read(OutputRead { view: OutputView::Combined, start: from, max_bytes: reach })?;
    if page.next - page.from >= reach as u64 {
        let skip = line_start(&page).unwrap_or_else(|| character_start(&page));
        skip_bytes(&mut page, skip);
    }
    Ok(page_text(&page))
}

/// Bytes up to and with the first line end, unless it is the last byte of all or behind a cut.
fn line_start(page: &ViewPage) -> Option<usize> {
    let mut before = 0;
    for (index, piece) in page.pieces.iter().enumerate() {
        let PagePiece::Bytes { bytes, .. } = piece else { return None };
        if let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            let last = index + 1 == page.pieces.len() && at + 1 == bytes.len();
            return (!last).then_some(before + at + 1);
        }
        before += bytes.len();
    }
    None
}

/// The byte too many, and with it the rest of the character that it may belong to.
fn character_start(page: &ViewPage) -> usize {
    let Some(PagePiece::Bytes { bytes, .. }) = page.pieces.first() else { return 1 };
    let continues = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    1 + bytes.iter().skip(1).take(3).take_while(continues).count()
}

fn skip_bytes(page: &mut ViewPage, skip: usize) {
    page.from += skip as u64;
    let mut left = skip;
    page.pieces.retain_mut(|piece| match piece {
        PagePiece::Bytes { at, bytes, .. } => {
            let gone = left.min(bytes.len());
            bytes.drain(..gone);
            *at += gone as u64;
            left -= gone;
            !bytes.is_empty()
        }
        PagePiece::Dropped { bytes } => {
            let gone = (left as u64).min(*bytes);
            *bytes -= gone;
            left -= gone as usize;
            *bytes > 0
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_become_a_character_is_held_back() {
        for (bytes, expected) in [
            (&b""[..], 0),
            (b"abc", 0),
            ("é".as_bytes(), 0),
            (b"a\xc3", 1),
            (b"\xe2\x82", 2),
            (b"x\xf0\x9f\x98", 3),
            ("x😀".as_bytes(), 0),
            (b"\xff", 0),
            (b"\xc3\xff", 0),
            (b"\x80", 0),
            (b"\xe2\x28", 0),
        ] {
            assert_eq!(incomplete_character_bytes(bytes), expected, "{bytes:x?}");
        }
    }
}
