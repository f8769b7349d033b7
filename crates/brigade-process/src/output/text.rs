//! Output as text: UTF-8, U+FFFD for invalid bytes, and a marker for dropped bytes.

use std::io;

use super::{OutputRead, OutputView, PagePiece, ProcessOutput, ReadStart, StdStream, ViewPage};

/// A decoder of consecutive pages that splits no character at a page boundary.
///
/// Each stream has its own incomplete character. Bytes of the other stream do not break it. It
/// appears where it is completed.
#[derive(Clone, Debug, Default)]
pub struct TextDecoder {
    unfinished: [Vec<u8>; 2],
}

/// Decodes one page alone.
pub fn page_text(page: &ViewPage) -> String {
    let mut decoder = TextDecoder::default();
    let mut text = decoder.decode_page(page);
    text.push_str(&decoder.finish());
    text
}

impl TextDecoder {
    /// Decodes the page that follows the previous one.
    pub fn decode_page(&mut self, page: &ViewPage) -> String {
        let mut text = String::new();
        for piece in &page.pieces {
            match piece {
                PagePiece::Bytes { stream, bytes, .. } => {
                    self.decode_bytes(*stream, bytes, &mut text)
                }
                PagePiece::Dropped { bytes } => {
                    self.flush(&mut text);
                    text.push_str(&format!("\n[... {bytes} bytes dropped ...]\n"));
                }
            }
        }
        text
    }

    /// Returns the remaining bytes of incomplete characters as text.
    pub fn finish(mut self) -> String {
        let mut text = String::new();
        self.flush(&mut text);
        text
    }

    fn decode_bytes(&mut self, stream: StdStream, bytes: &[u8], text: &mut String) {
        let unfinished = &mut self.unfinished[stream.index()];
        let joined;
        let bytes = if unfinished.is_empty() {
            bytes
        } else {
            unfinished.extend_from_slice(bytes);
            joined = std::mem::take(unfinished);
            &joined
        };
        let (whole, rest) = bytes.split_at(bytes.len() - incomplete_character_bytes(bytes));
        text.push_str(&String::from_utf8_lossy(whole));
        unfinished.extend_from_slice(rest);
    }

    fn flush(&mut self, text: &mut String) {
        for unfinished in &mut self.unfinished {
            text.push_str(&String::from_utf8_lossy(unfinished));
            unfinished.clear();
        }
    }
}

/// Returns the number of bytes at the end that more bytes could complete to a character.
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
    // One more byte shows whether the text begins at a line start.
    let wanted = max_bytes.saturating_add(1);
    let start = ReadStart::FromEnd(wanted as u64);
    let mut page =
        output.read(OutputRead { view: OutputView::Combined, start, max_bytes: wanted })?;
    if page.next - page.from >= wanted as u64 {
        let skip = line_start(&page).unwrap_or_else(|| character_start(&page));
        skip_bytes(&mut page, skip);
    }
    Ok(page_text(&page))
}

/// Returns the bytes up to and including the first line end. Ignores a line end that is the last
/// byte or follows dropped bytes.
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

/// Returns the length of the extra byte and of the rest of its character.
fn character_start(page: &ViewPage) -> usize {
    let Some(PagePiece::Bytes { bytes, .. }) = page.pieces.first() else { return 1 };
    let continues = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    1 + bytes.iter().skip(1).take(3).take_while(continues).count()
}

fn skip_bytes(page: &mut ViewPage, skip: usize) {
    page.from += skip as u64;
    let mut remaining = skip;
    page.pieces.retain_mut(|piece| match piece {
        PagePiece::Bytes { at, bytes, .. } => {
            let skipped = remaining.min(bytes.len());
            bytes.drain(..skipped);
            *at += skipped as u64;
            remaining -= skipped;
            !bytes.is_empty()
        }
        PagePiece::Dropped { bytes } => {
            let skipped = (remaining as u64).min(*bytes);
            *bytes -= skipped;
            remaining -= skipped as usize;
            *bytes > 0
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_incomplete_characters_are_held_back() {
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
