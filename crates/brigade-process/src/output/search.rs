//! Lines that match a pattern.
//!
//! A line belongs to one stream: in the combined view, bytes of the other stream do not end it, and
//! it is found whole although it arrived in parts. Lines are found in the order in which they end.
//! A cut ends the lines before it and begins new ones, since nobody knows what it held.

use std::io;

use regex::bytes::{Regex, RegexBuilder};

use super::lines::{LONGEST_SHOWN, Lines};
use super::{Output, Page, Piece, Read, Start, Stream, Which};

/// How much is read at once.
const PAGE_BYTES: usize = 256 * 1024;
/// The most memory that a compiled pattern may take, and again as much for running it.
const PATTERN_BYTES: usize = 1024 * 1024;

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    pub which: Which,
    /// A regular expression over the bytes of one line without its end. Classes such as `\w` and
    /// the ignoring of case know ASCII alone.
    pub pattern: &'a str,
    pub ignore_case: bool,
    pub from: Resume,
    /// Stop after so many, at least one. Where two lines end at one place it can be one more.
    pub max_matches: usize,
    /// The most of a line that is shown, up to 32 KiB. Longer ones are searched all the same.
    pub max_line_bytes: usize,
}

/// Where a search goes on, so that no line is found twice or split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// Where reading begins: the oldest line that was not complete.
    pub read_from: u64,
    /// Lines that end up to here were looked at.
    pub seen_to: u64,
}

/// What a search has found so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// In the order in which they end.
    pub lines: Vec<Line>,
    pub next: Resume,
    /// Bytes that could not be searched because they were cut.
    pub cut: u64,
    /// All there is was searched, and nothing more will come.
    pub ended: bool,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where it begins in the view.
    pub at: u64,
    pub stream: Stream,
    /// Without its end. Of a long line the part with the match, and how much was left out.
    pub text: String,
    /// Its end has not come yet. It is found again when it has grown.
    pub unfinished: bool,
}

/// Why a search found nothing out.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error("the pattern cannot be used: {0}")]
    Pattern(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Resume {
    /// At a position of the view, as if a line began there.
    pub fn at(position: u64) -> Self {
        Self { read_from: position, seen_to: position }
    }
}

pub(super) fn search(output: &Output, search: &Search<'_>) -> Result<Found, SearchError> {
    let pattern = compile(search)?;
    let shown = search.max_line_bytes.min(LONGEST_SHOWN);
    let mut searching = Searching {
        lines: Lines::new(&pattern, shown, search.from.seen_to),
        position: search.from.read_from,
        limit: search.max_matches.max(1),
        seen_to: search.from.seen_to,
        cut: 0,
    };
    let mut goal = None;
    loop {
        let from = Start::At(searching.position);
        let page = output.read(Read { which: search.which, from, max_bytes: PAGE_BYTES })?;
        if !searching.page(&page) {
            return Ok(searching.found(false));
        }
        // What there was at the first look is enough: a command that writes without end does not
        // hold its reader.
        if page.next >= *goal.get_or_insert(page.total) {
            searching.lines.at_end(searching.position, !page.ended);
            return Ok(searching.found(page.ended));
        }
    }
}

fn compile(search: &Search<'_>) -> Result<Regex, SearchError> {
    RegexBuilder::new(search.pattern)
        .unicode(false)
        .case_insensitive(search.ignore_case)
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(PATTERN_BYTES)
        .build()
        .map_err(|error| SearchError::Pattern(problem(&error)))
}

/// The one line that names the problem, without the drawing that comes with it.
fn problem(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => "it is too large; use fewer repetitions".to_owned(),
        error => {
            let message = error.to_string();
            let last = message.lines().last().unwrap_or_default().trim();
            last.strip_prefix("error: ").unwrap_or(last).to_owned()
        }
    }
}

struct Searching<'a> {
    lines: Lines<'a>,
    position: u64,
    limit: usize,
    seen_to: u64,
    cut: u64,
}

impl Searching<'_> {
    /// False when enough was found.
    fn page(&mut self, page: &Page) -> bool {
        page.pieces.iter().all(|piece| match piece {
            Piece::Bytes { stream, bytes, .. } => self.bytes(*stream, bytes),
            Piece::Cut { bytes } => {
                let end = self.position + bytes;
                self.cut += end.saturating_sub(self.seen_to).min(*bytes);
                self.lines.at_end(end, false);
                self.position = end;
                !self.is_enough()
            }
        })
    }

    fn bytes(&mut self, stream: Stream, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let used = self.lines.take(stream, self.position, bytes);
            self.position += used as u64;
            bytes = &bytes[used..];
            if self.is_enough() {
                return false;
            }
        }
        true
    }

    fn is_enough(&self) -> bool {
        self.lines.found.len() >= self.limit
    }

    fn found(self, ended: bool) -> Found {
        let read_from = self.lines.oldest_open().unwrap_or(self.position);
        let next = Resume { read_from, seen_to: self.position.max(self.seen_to) };
        Found { lines: self.lines.found, next, cut: self.cut, ended }
    }
}
