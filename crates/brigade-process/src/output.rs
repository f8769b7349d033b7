//! The output of a process, read from its shim's directory during the run and after it.
//!
//! A view is one stream, or both in the order of arrival. A position in a view counts all bytes
//! produced in it since the beginning, stored or not. So a position never changes its meaning. A
//! [`PagePiece::Dropped`] marks missing bytes with their number:
//!
//! * the middle of a stream, dropped because of its cap,
//! * in the combined view, a segment whose order of arrival was dropped while both streams grew;
//!   its bytes may be stored and can be read from each stream alone,
//! * bytes that did not fit on a full disk, if they can be detected.
//!
//! The last case has a limit. The record counts unwritten bytes, but not their positions. An
//! unwritten segment before written ones reads as zeros or as older output of the same stream. In
//! that case [`OutputTotals::unwritten`] and [`ViewPage::unwritten`] are above zero.
//!
//! A reader takes no lock against the shim. It reads the record, the bytes, and the record again.
//! Bytes that may have been overwritten meanwhile become a `Dropped` piece.
//!
//! Reading order: this file, `page` (one read), `arrival_order` (the combined view), `files`,
//! `text`, `follow` with `file_watch`, `search` with `line_matcher`, `line_watch`.

mod arrival_order;
mod file_watch;
mod files;
mod follow;
mod line_matcher;
mod line_watch;
mod page;
mod search;
mod text;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use follow::OutputFollower;
pub use line_watch::LineWatch;
pub use page::{PagePiece, ViewPage};
pub use search::{LineMatch, OutputSearch, SearchBounds, SearchCursor, SearchError, SearchResult};
pub use text::{TextDecoder, page_text};

use crate::shim::record::{Claimer, ShimPhase, ShimRecord};
use files::ShimFiles;

/// The output of one process. Cheap to clone; it holds no open files.
#[derive(Clone, Debug)]
pub struct ProcessOutput {
    dir: Arc<Path>,
    /// True if the directory may not exist yet. Otherwise a missing directory was removed.
    expected: bool,
}

/// One of the two output streams of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StdStream {
    Stdout,
    Stderr,
}

/// The part of the output that a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputView {
    Stdout,
    Stderr,
    /// Both streams in the order of arrival.
    Combined,
}

/// The start of a read in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStart {
    /// This many bytes after the beginning. There is nothing yet beyond the end.
    At(u64),
    /// This many bytes before the current end, or the beginning if there are fewer.
    FromEnd(u64),
}

/// One read of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputRead {
    pub view: OutputView,
    pub start: ReadStart,
    /// The most bytes to return, at least one. `Dropped` pieces do not count.
    pub max_bytes: usize,
}

/// The bytes produced so far, stored or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputTotals {
    pub stdout: u64,
    pub stderr: u64,
    /// Bytes of either stream that could not be written to the disk.
    pub unwritten: u64,
    /// The milliseconds for which output waited for a reader with a lease.
    pub held_ms: u64,
    /// True if no more output will come. It stays false if the shim was killed.
    pub ended: bool,
}

impl ProcessOutput {
    /// Opens the output of the shim with this directory. Without a record it is empty.
    pub fn open(dir: &Path) -> io::Result<Self> {
        ShimFiles::open(dir)?.map(|files| files.record()).transpose()?;
        Ok(Self { dir: Arc::from(dir), expected: false })
    }

    /// Opens the output of a shim that may not have started. It is empty until the directory
    /// exists.
    pub fn open_expected(dir: &Path) -> Self {
        Self { dir: Arc::from(dir), expected: true }
    }

    /// Returns the current totals.
    pub fn totals(&self) -> io::Result<OutputTotals> {
        let files = none_if_expected(self.expected, ShimFiles::open(&self.dir))?;
        let record = files.map(|files| files.record()).transpose()?;
        Ok(record.as_ref().map(OutputTotals::from_record).unwrap_or_default())
    }

    /// Reads one page of a view. Blocks only while it reads the bytes.
    pub fn read(&self, read: OutputRead) -> io::Result<ViewPage> {
        Ok(none_if_expected(self.expected, page::read_page(&self.dir, read))?
            .unwrap_or_else(|| ViewPage::empty(read.start)))
    }

    /// Returns the last output of both streams as text, at most this many bytes before decoding.
    /// The text begins at a line start if one is in range, else at a character.
    pub fn tail_text(&self, max_bytes: usize) -> io::Result<String> {
        text::read_tail_text(self, max_bytes)
    }

    /// Returns the stored lines that match a pattern. Reads as far as it must, and blocks.
    pub fn search(&self, search: OutputSearch<'_>) -> Result<SearchResult, SearchError> {
        search::search(self, &search)
    }

    /// Returns a follower that yields output from this position as it arrives.
    pub fn follow(self, view: OutputView, start: ReadStart) -> OutputFollower {
        OutputFollower::new(self, view, start)
    }
}

/// Turns "not found" into `None` if the directory is expected to appear later.
fn none_if_expected<T>(expected: bool, result: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match result {
        Err(error) if expected && error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result,
    }
}

impl StdStream {
    /// Both streams in the order of their files.
    pub const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];

    fn index(self) -> usize {
        match self {
            Self::Stdout => 0,
            Self::Stderr => 1,
        }
    }
}

impl OutputView {
    /// Returns the stream of a view, or `None` for the combined view.
    fn single_stream(self) -> Option<StdStream> {
        match self {
            Self::Stdout => Some(StdStream::Stdout),
            Self::Stderr => Some(StdStream::Stderr),
            Self::Combined => None,
        }
    }
}

impl ReadStart {
    fn resolve(self, total: u64) -> u64 {
        match self {
            Self::At(position) => position,
            Self::FromEnd(bytes) => total.saturating_sub(bytes),
        }
    }
}

impl OutputTotals {
    /// Returns the bytes of both streams.
    pub fn combined(&self) -> u64 {
        self.stdout.saturating_add(self.stderr)
    }

    /// Returns the bytes produced in this view.
    pub fn in_view(&self, view: OutputView) -> u64 {
        match view {
            OutputView::Stdout => self.stdout,
            OutputView::Stderr => self.stderr,
            OutputView::Combined => self.combined(),
        }
    }

    fn from_record(record: &ShimRecord) -> Self {
        let [stdout, stderr] = record.produced_bytes;
        Self {
            stdout,
            stderr,
            unwritten: record.unwritten_bytes[0].saturating_add(record.unwritten_bytes[1]),
            held_ms: record.held_ms,
            // A claim by a runtime means that nothing was executed.
            ended: record.phase == ShimPhase::Done || record.claimer == Claimer::Runtime,
        }
    }
}
