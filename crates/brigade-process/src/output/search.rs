//! Lines that match a pattern.
//!
//! A line belongs to one stream: in the combined view, bytes of the other stream do not end it, and
//! it is found whole although it arrived in parts. Lines are found in the order in which they end.
//! A cut ends the lines before it and begins new ones, since nobody knows what it held.

use std::io;

use regex::bytes::{Regex, RegexBuilder};

use super::line_matcher::{EXCERPT_MAX_BYTES, LineMatcher};
use super::{OutputRead, OutputView, PagePiece, ProcessOutput, ReadStart, StdStream, ViewPage};

/// How much is read at once.
const PAGE_BYTES: usize = 256 * 1024;
/// The most memory that a compiled pattern may take, and again as much for running it.
const PATTERN_BYTES: usize = 1024 * 1024;

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct OutputSearch<'a> {
    pub view: OutputView,
    /// A regular expression over the bytes of one line without its end. Classes such as `\w` and
    /// the ignoring of case know ASCII alone.
    pub pattern: &'a str,
    pub ignore_case: bool,
    pub cursor: SearchCursor,
    /// Stop after so many, at least one. Where two lines end at one place it can be one more.
    pub max_matches: usize,
    /// The most of a line that is shown, up to 32 KiB. Longer ones are searched all the same.
    pub max_line_bytes: usize,
}

/// Where a search goes on, so that no line is found twice or split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchCursor {
    /// Where reading begins: the oldest line that was not complete.
    pub read_from: u64,
    /// Lines that end up to here were looked at.
    pub searched_to: u64,
}

/// What a search has found so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchResult {
    /// In the order in which they end.
    pub lines: Vec<LineMatch>,
    pub next_cursor: SearchCursor,
    /// Bytes that could not be searched because they were cut.
    pub dropped_bytes: u64,
    /// All there is was searched, and nothing more will come.
    pub ended: bool,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineMatch {
    /// Where it begins in the view.
    pub at: u64,
    pub stream: StdStream,
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

impl SearchCursor {
    /// At a position of the view, as if a line began there.
    pub fn at(position: u64) -> Self {
        Self { read_from: position, searched_to: position }
    }
}

pub(super) fn search(
    output: &ProcessOutput,
    search: &OutputSearch<'_>,
) -> Result<SearchResult, SearchError> {
    let pattern = compile(search)?;
    let shown = search.max_line_bytes.min(EXCERPT_MAX_BYTES);
    let mut searching = SearchState {
        lines: LineMatcher::new(&pattern, shown, search.cursor.searched_to),
        position: search.cursor.read_from,
        limit: search.max_matches.max(1),
        searched_to: search.cursor.searched_to,
        dropped_bytes: 0,
    };
    let mut goal = None;
    loop {
        let from = ReadStart::At(searching.position);
        let page =
            output.read(OutputRead { view: search.view, start: from, max_bytes: PAGE_BYTES })?;
        if !searching.search_page(&page) {
            return Ok(searching.into_result(false));
        }
        // What there was at the first look is enough: a command that writes without end does not
        // hold its reader.
        if page.next >= *goal.get_or_insert(page.total) {
            searching.lines.finish_open_lines(searching.position, !page.ended);
            return Ok(searching.into_result(page.ended));
        }
    }
}

fn compile(search: &OutputSearch<'_>) -> Result<Regex, SearchError> {
    RegexBuilder::new(search.pattern)
        .unicode(false)
        .case_insensitive(search.ignore_case)
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(PATTERN_BYTES)
        .build()
        .map_err(|error| SearchError::Pattern(pattern_problem(&error)))
}

/// The one line that names the problem, without the drawing that comes with it.
fn pattern_problem(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => "it is too large; use fewer repetitions".to_owned(),
        error => {
            let message = error.to_string();
            let last = message.lines().last().unwrap_or_default().trim();
            last.strip_prefix("error: ").unwrap_or(last).to_owned()
        }
    }
}

struct SearchState<'a> {
    lines: LineMatcher<'a>,
    position: u64,
    limit: usize,
    searched_to: u64,
    dropped_bytes: u64,
}

impl SearchState<'_> {
    /// False when enough was found.
    fn search_page(&mut self, page: &ViewPage) -> bool {
        page.pieces.iter().all(|piece| match piece {
            PagePiece::Bytes { stream, bytes, .. } => self.search_bytes(*stream, bytes),
            PagePiece::Dropped { bytes } => {
                let end = self.position + bytes;
                self.dropped_bytes += end.saturating_sub(self.searched_to).min(*bytes);
                self.lines.finish_open_lines(end, false);
                self.position = end;
                !self.is_enough()
            }
        })
    }

    fn search_bytes(&mut self, stream: StdStream, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let used = self.lines.push_bytes(stream, self.position, bytes);
            self.position += used as u64;
            bytes = &bytes[used..];
            if self.is_enough() {
                return false;
            }
        }
        true
    }

    fn is_enough(&self) -> bool {
        self.lines.matches.len() >= self.limit
    }

    fn into_result(self, ended: bool) -> SearchResult {
        let read_from = self.lines.oldest_open().unwrap_or(self.position);
        let next = SearchCursor { read_from, searched_to: self.position.max(self.searched_to) };
        SearchResult {
            lines: self.lines.matches,
            next_cursor: next,
            dropped_bytes: self.dropped_bytes,
            ended,
        }
    }
}
