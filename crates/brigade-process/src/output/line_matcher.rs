//! Assembles lines from the pieces of a view, and matches the pattern against each.
//!
//! A line of any length needs bounded memory. The pattern is matched window by window. Each window
//! repeats the end of the previous one, so a match up to the length of the overlap is found.

use std::ops::Range;

use regex::bytes::Regex;

use super::text::incomplete_character_bytes;
use super::{LineMatch, StdStream};

const WINDOW: usize = 64 * 1024;
const OVERLAP: usize = 4 * 1024;
/// The most bytes of a line in a result.
pub(super) const EXCERPT_MAX_BYTES: usize = WINDOW / 2;

#[derive(Debug)]
pub(super) struct LineMatcher<'a> {
    pattern: &'a Regex,
    excerpt_max_bytes: usize,
    /// Lines that end at or before this position were searched before.
    searched_to: u64,
    open_lines: [Option<OpenLine>; 2],
    pub(super) matches: Vec<LineMatch>,
}

/// A line whose end has not arrived.
#[derive(Clone, Debug)]
struct OpenLine {
    /// The position of its first byte in the view.
    at: u64,
    /// The last bytes of the line.
    window: Vec<u8>,
    /// The number of its bytes before the window.
    before: u64,
    excerpt: Option<LineExcerpt>,
}

/// The part of a line in a result.
#[derive(Clone, Debug)]
struct LineExcerpt {
    /// The offset of the excerpt in the line.
    from: u64,
    bytes: Vec<u8>,
}

impl<'a> LineMatcher<'a> {
    pub(super) fn new(pattern: &'a Regex, excerpt_max_bytes: usize, searched_to: u64) -> Self {
        Self {
            pattern,
            excerpt_max_bytes,
            searched_to,
            open_lines: [None, None],
            matches: Vec::new(),
        }
    }

    /// Takes bytes of one stream up to and including the first line end. Returns their number.
    pub(super) fn push_bytes(&mut self, stream: StdStream, position: u64, bytes: &[u8]) -> usize {
        let line_end = bytes.iter().position(|byte| *byte == b'\n');
        if let Some(length) = line_end
            && self.open_lines[stream.index()].is_none()
            && length < WINDOW
            && !self.pattern.is_match(strip_carriage_return(&bytes[..length]))
        {
            return length + 1;
        }
        let mut line =
            self.open_lines[stream.index()].take().unwrap_or_else(|| OpenLine::new(position));
        line.extend(&bytes[..line_end.unwrap_or(bytes.len())], self);
        let Some(length) = line_end else {
            self.open_lines[stream.index()] = Some(line);
            return bytes.len();
        };
        let end = position + length as u64 + 1;
        self.finish_line(stream, line, end, false);
        length + 1
    }

    /// Finishes the open lines at dropped bytes or at the end of the output. Lines that may still
    /// grow stay open.
    pub(super) fn finish_open_lines(&mut self, end: u64, unfinished: bool) {
        for stream in StdStream::BOTH {
            let open = &mut self.open_lines[stream.index()];
            let line = if unfinished { open.clone() } else { open.take() };
            if let Some(line) = line {
                self.finish_line(stream, line, end, unfinished);
            }
        }
    }

    /// Ends the open lines that began more than this many bytes before the position, as lines that may
    /// still grow.
    pub(super) fn split_long_lines(&mut self, position: u64, bytes: u64) {
        for stream in StdStream::BOTH {
            let open = &mut self.open_lines[stream.index()];
            if let Some(line) = open.take_if(|line| position - line.at > bytes) {
                self.finish_line(stream, line, position, true);
            }
        }
    }

    pub(super) fn oldest_open(&self) -> Option<u64> {
        self.open_lines.iter().flatten().map(|open| open.at).min()
    }

    fn finish_line(&mut self, stream: StdStream, mut line: OpenLine, end: u64, unfinished: bool) {
        if end <= self.searched_to {
            return;
        }
        if !unfinished {
            line.window.truncate(strip_carriage_return(&line.window).len());
        }
        if line.excerpt.is_none() {
            line.excerpt = line.find(self.pattern, self.excerpt_max_bytes);
        }
        if let Some(excerpt) = &line.excerpt {
            let text = excerpt.text(line.length());
            self.matches.push(LineMatch { at: line.at, stream, text, unfinished });
        }
    }
}

impl OpenLine {
    fn new(at: u64) -> Self {
        Self { at, window: Vec::new(), before: 0, excerpt: None }
    }

    fn length(&self) -> u64 {
        self.before + self.window.len() as u64
    }

    fn extend(&mut self, mut bytes: &[u8], matcher: &LineMatcher<'_>) {
        while !bytes.is_empty() {
            if self.window.len() >= WINDOW {
                self.advance(matcher);
            }
            let (fitting, rest) = bytes.split_at(bytes.len().min(WINDOW - self.window.len()));
            self.window.extend_from_slice(fitting);
            bytes = rest;
        }
    }

    fn advance(&mut self, matcher: &LineMatcher<'_>) {
        // A match at the end of the window may mistake it for the end of the line. The next window
        // or the last one decides.
        let end = matcher.pattern.shortest_match_at(&self.window, self.search_from());
        if self.excerpt.is_none() && end.is_some_and(|end| end < self.window.len()) {
            self.excerpt = self.find(matcher.pattern, matcher.excerpt_max_bytes);
        }
        let passed = self.window.len() - OVERLAP;
        self.window.drain(..passed);
        self.before += passed as u64;
    }

    fn find(&self, pattern: &Regex, max_bytes: usize) -> Option<LineExcerpt> {
        let found = pattern.find_at(&self.window, self.search_from())?;
        let part = self.excerpt_range(&found.range(), max_bytes);
        let from = self.before + part.start as u64;
        Some(LineExcerpt { from, bytes: self.window[part].to_vec() })
    }

    /// Skips the first byte of a later window, so that the pattern does not take it for the start
    /// of the line.
    fn search_from(&self) -> usize {
        usize::from(self.before > 0)
    }

    fn excerpt_range(&self, found: &Range<usize>, max_bytes: usize) -> Range<usize> {
        let from_beginning = self.before == 0 && found.end <= max_bytes;
        let whole = self.before == 0 && self.window.len() <= max_bytes;
        let mut start =
            if from_beginning || whole { 0 } else { found.start.saturating_sub(max_bytes / 4) };
        while start > 0 && start < found.start && self.window[start] & 0b1100_0000 == 0b1000_0000 {
            start += 1;
        }
        let end = self.window.len().min(start + max_bytes);
        let split = if end < self.window.len() {
            incomplete_character_bytes(&self.window[start..end])
        } else {
            0
        };
        start..end - split
    }
}

fn strip_carriage_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

impl LineExcerpt {
    fn text(&self, line_length: u64) -> String {
        let shown = String::from_utf8_lossy(&self.bytes);
        let after = line_length.saturating_sub(self.from + self.bytes.len() as u64);
        let mut text = String::with_capacity(shown.len());
        if self.from > 0 {
            text.push_str(&format!("[... {} bytes before ...]", self.from));
        }
        text.push_str(&shown);
        if after > 0 {
            text.push_str(&format!("[... {after} bytes more ...]"));
        }
        text
    }
}
