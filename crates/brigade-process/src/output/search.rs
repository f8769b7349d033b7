//! Finds lines that match a pattern.
//!
//! A line belongs to one stream. In the combined view, bytes of the other stream do not end it, so
//! it is found whole. Lines are found in the order of their ends. Dropped bytes end the open lines
//! and start new ones.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use regex::bytes::{Regex, RegexBuilder};

use super::line_matcher::{EXCERPT_MAX_BYTES, LineMatcher};
use super::{OutputRead, OutputView, PagePiece, ProcessOutput, ReadStart, StdStream, ViewPage};

/// The bytes of one read.
const PAGE_BYTES: usize = 256 * 1024;
/// The most memory of a compiled pattern. It bounds the time for each byte: some patterns take all
/// their states at once.
const PATTERN_BYTES: usize = 64 * 1024;
/// The most memory of the cache for the execution of a pattern.
const PATTERN_CACHE_BYTES: usize = 256 * 1024;
/// The bytes between two checks of the bounds.
const CHECK_BYTES: usize = 16 * 1024;

/// The most bytes that the next call reads again after a call that ended early. A longer line is
/// split there.
const REREAD_BYTES_MAX: u64 = 1024 * 1024;

/// A search for lines.
#[derive(Clone, Copy, Debug)]
pub struct OutputSearch<'a> {
    pub view: OutputView,
    /// A regular expression over the bytes of a line without its end. Classes such as `\w` and
    /// `ignore_case` support ASCII only.
    pub pattern: &'a str,
    pub ignore_case: bool,
    pub cursor: SearchCursor,
    /// The most lines to return, at least one. If two lines end at the same position, or are longer
    /// than 1 MiB, there can be one more of each.
    pub max_matches: usize,
    /// The most bytes of a line to return, up to 32 KiB. Longer lines are searched too.
    pub max_line_bytes: usize,
    pub bounds: SearchBounds<'a>,
}

/// The bounds of one call. A call that reaches one ends early, and another continues at its cursor.
#[derive(Clone, Copy, Debug, Default)]
pub struct SearchBounds<'a> {
    /// The bytes after which the search ends. Each call searches at least one read.
    pub max_bytes: Option<u64>,
    /// The time at which the search ends, after at least one read.
    pub deadline: Option<Instant>,
    /// Ends the search at once when it is true.
    pub stop: Option<&'a AtomicBool>,
}

/// The position of a search, with which the next call continues without a repeated or split line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchCursor {
    /// The start of the next read: the oldest incomplete line.
    pub read_from: u64,
    /// Lines that end at or before this position were searched.
    pub searched_to: u64,
}

/// The result of one search call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchResult {
    /// The matching lines, in the order of their ends.
    pub lines: Vec<LineMatch>,
    pub next_cursor: SearchCursor,
    /// The bytes that could not be searched because they were dropped.
    pub dropped_bytes: u64,
    /// True if all output that was there was searched.
    pub is_complete: bool,
    /// True if all output was searched and no more will come.
    pub ended: bool,
}

/// A matching line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineMatch {
    /// The position of its first byte in the view.
    pub at: u64,
    pub stream: StdStream,
    /// The line without its end. A long line is truncated to the part with the match, with the
    /// omitted sizes.
    pub text: String,
    /// True if the end of the line has not arrived. A longer line is found again.
    pub unfinished: bool,
}

/// A reason why a search failed.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error("the pattern cannot be used: {0}")]
    Pattern(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl SearchCursor {
    /// Returns the cursor without the distant start of a long line, so that a call reads little twice.
    #[must_use]
    pub fn without_long_lines(self) -> Self {
        let read_from = self.read_from.max(self.searched_to.saturating_sub(REREAD_BYTES_MAX));
        Self { read_from, ..self }
    }

    /// Starts at a position of the view, as if a line began there.
    pub fn at(position: u64) -> Self {
        Self { read_from: position, searched_to: position }
    }
}

pub(super) fn search(
    output: &ProcessOutput,
    search: &OutputSearch<'_>,
) -> Result<SearchResult, SearchError> {
    let pattern = compile_pattern(search.pattern, search.ignore_case)?;
    let excerpt_max_bytes = search.max_line_bytes.min(EXCERPT_MAX_BYTES);
    let mut state = SearchState {
        lines: LineMatcher::new(&pattern, excerpt_max_bytes, search.cursor.searched_to),
        position: search.cursor.read_from,
        limit: search.max_matches.max(1),
        searched_to: search.cursor.searched_to,
        checked_at: search.cursor.read_from,
        bounds: &search.bounds,
        dropped_bytes: 0,
    };
    let mut goal = None;
    loop {
        let from = ReadStart::At(state.position);
        let page =
            output.read(OutputRead { view: search.view, start: from, max_bytes: PAGE_BYTES })?;
        if !state.search_page(&page) {
            return Ok(state.into_result(SearchEnd::Early));
        }
        // The total of the first read is the goal, so that a process that never stops writing does
        // not block its reader.
        if page.next >= *goal.get_or_insert(page.total) {
            state.lines.finish_open_lines(state.position, !page.ended);
            let end = if page.ended { SearchEnd::Output } else { SearchEnd::Present };
            return Ok(state.into_result(end));
        }
        if state.is_bounded() {
            return Ok(state.into_result(SearchEnd::Early));
        }
    }
}

impl SearchBounds<'_> {
    /// Returns true if a call that has searched this many new bytes, or none yet, has to end.
    fn is_reached(&self, searched: Option<u64>) -> bool {
        let is_stopped = self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        let is_over = searched.is_some_and(|bytes| {
            self.max_bytes.is_some_and(|max| bytes >= max)
                || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
        });
        is_stopped || is_over
    }
}

/// The place at which a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchEnd {
    /// Before the end of the output, with enough matches or at a bound.
    Early,
    /// At the end of an output that may grow.
    Present,
    Output,
}

/// Compiles a pattern whose execution takes time in proportion to the bytes, and bounded memory.
pub(super) fn compile_pattern(pattern: &str, ignore_case: bool) -> Result<Regex, SearchError> {
    RegexBuilder::new(pattern)
        .unicode(false)
        .case_insensitive(ignore_case)
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(PATTERN_CACHE_BYTES)
        .build()
        .map_err(|error| SearchError::Pattern(pattern_problem(&error)))
}

/// Returns the line with the problem, without the diagram around it.
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
    /// The position before which an earlier call has searched.
    searched_to: u64,
    /// The position at which the bounds were checked.
    checked_at: u64,
    bounds: &'a SearchBounds<'a>,
    dropped_bytes: u64,
}

impl SearchState<'_> {
    /// Searches one page. Returns false if there are enough matches, or at a bound.
    fn search_page(&mut self, page: &ViewPage) -> bool {
        page.pieces.iter().all(|piece| match piece {
            PagePiece::Bytes { stream, bytes, .. } => self.search_bytes(*stream, bytes),
            PagePiece::Dropped { bytes } => {
                let end = self.position + bytes;
                self.dropped_bytes += end.saturating_sub(self.searched_to).min(*bytes);
                self.lines.finish_open_lines(end, false);
                self.position = end;
                !self.has_enough()
            }
        })
    }

    fn search_bytes(&mut self, stream: StdStream, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let next = &bytes[..bytes.len().min(CHECK_BYTES)];
            let used = self.lines.push_bytes(stream, self.position, next);
            self.position += used as u64;
            bytes = &bytes[used..];
            if self.has_enough() {
                return false;
            }
            let is_due = self.position - self.checked_at >= CHECK_BYTES as u64;
            if is_due && !bytes.is_empty() && self.is_bounded() {
                return false;
            }
        }
        true
    }

    /// Checks the bounds. A call that has searched nothing new goes on, unless it is stopped.
    fn is_bounded(&mut self) -> bool {
        self.checked_at = self.position;
        let searched = self.position.checked_sub(self.searched_to);
        self.bounds.is_reached(searched.filter(|bytes| *bytes > 0))
    }

    fn has_enough(&self) -> bool {
        self.lines.matches.len() >= self.limit
    }

    fn into_result(mut self, end: SearchEnd) -> SearchResult {
        if end == SearchEnd::Early {
            self.lines.split_long_lines(self.position, REREAD_BYTES_MAX);
        }
        let read_from = self.lines.oldest_open().unwrap_or(self.position);
        let next_cursor =
            SearchCursor { read_from, searched_to: self.position.max(self.searched_to) };
        SearchResult {
            lines: self.lines.matches,
            next_cursor,
            dropped_bytes: self.dropped_bytes,
            is_complete: end != SearchEnd::Early,
            ended: end == SearchEnd::Output,
        }
    }
}
