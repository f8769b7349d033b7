//! What a command has written, read from its shim's directory while it runs and after.
//!
//! A view is one stream alone, or both in the order in which their bytes arrived. A position in a
//! view counts the bytes that were produced in it since the beginning, kept or not, so it means the
//! same for ever. What is no longer there is always marked, with its size, as a [`Piece::Cut`]:
//!
//! * the middle of a stream, dropped because of its cap,
//! * in the combined view, a stretch whose order of arrival was dropped while both streams went on:
//!   its bytes may be kept, and whoever wants them reads each stream alone,
//! * what the file lacks because the disk was full, as far as that can be seen.
//!
//! That last one has a limit. The record counts bytes that could not be written but not where, and
//! a lacking stretch that lies before written ones reads as zeros or as older output of the same
//! stream. [`Totals::unwritten`] and [`Page::unwritten`] are above zero then: the output is a
//! help, not a proof.
//!
//! Nothing here locks the shim out. A reader looks at the record, reads, and looks at the record
//! again; whatever may have been overwritten in between becomes a cut.
//!
//! Reading order: this file, `page` (one read), `order` (the combined view), `files`, `text`,
//! `follow` with `watch`, `search` with `lines`.

mod arrival_order;
mod file_watch;
mod files;
mod follow;
mod line_matcher;
mod page;
mod search;
mod text;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use follow::OutputFollower;
pub use page::{PagePiece, ViewPage};
pub use search::{LineMatch, OutputSearch, SearchCursor, SearchError, SearchResult};
pub use text::{TextDecoder, page_text};

use crate::shim::record::{Claimer, ShimPhase, ShimRecord};
use files::ShimFiles;

/// The output of one command. Cheap to clone; it holds no open files.
#[derive(Clone, Debug)]
pub struct ProcessOutput {
    dir: Arc<Path>,
    /// Whether the directory may be yet to come. Otherwise it was there, and its absence is removal.
    expected: bool,
}

/// One of a command's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StdStream {
    Stdout,
    Stderr,
}

/// What to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputView {
    Stdout,
    Stderr,
    /// Both streams in the order of arrival.
    Combined,
}

/// Where to begin in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStart {
    /// At this many bytes after the beginning. Beyond the end there is nothing yet.
    At(u64),
    /// This many bytes before what is the end at the moment, or at the beginning if there are fewer.
    FromEnd(u64),
}

/// One read of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputRead {
    pub view: OutputView,
    pub start: ReadStart,
    /// The most bytes to hand out; at least one is. Cuts do not count.
    pub max_bytes: usize,
}

/// How much there is, kept or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputTotals {
    pub stdout: u64,
    pub stderr: u64,
    /// Bytes of either stream that could not be written to the disk.
    pub unwritten: u64,
    /// How long output has waited for a reader who must not miss anything, in milliseconds.
    pub held_ms: u64,
    /// Nothing more will come. It stays false when the shim was killed.
    pub ended: bool,
}

impl ProcessOutput {
    /// Of the shim with this directory. One without a record yet reads as empty output.
    pub fn open(dir: &Path) -> io::Result<Self> {
        ShimFiles::open(dir)?.map(|files| files.record()).transpose()?;
        Ok(Self { dir: Arc::from(dir), expected: false })
    }

    /// Of a shim that may not have been started: until its directory is there it reads as empty.
    pub fn open_expected(dir: &Path) -> Self {
        Self { dir: Arc::from(dir), expected: true }
    }

    /// How much there is at the moment.
    pub fn totals(&self) -> io::Result<OutputTotals> {
        let files = none_if_expected(self.expected, ShimFiles::open(&self.dir))?;
        let record = files.map(|files| files.record()).transpose()?;
        Ok(record.as_ref().map(OutputTotals::from_record).unwrap_or_default())
    }

    /// One page of a view. Blocks no longer than reading the bytes takes.
    pub fn read(&self, read: OutputRead) -> io::Result<ViewPage> {
        Ok(none_if_expected(self.expected, page::read_page(&self.dir, read))?
            .unwrap_or_else(|| ViewPage::empty(read.start)))
    }

    /// The last output of both streams as text, of at most this many bytes before decoding. It
    /// begins with a line where one begins in reach, else with a character.
    pub fn tail_text(&self, max_bytes: usize) -> io::Result<String> {
        text::read_tail_text(self, max_bytes)
    }

    /// The lines that match a pattern, among what is kept. Reads as far as it must, and blocks.
    pub fn search(&self, search: OutputSearch<'_>) -> Result<SearchResult, SearchError> {
        search::search(self, &search)
    }

    /// Hands out the output from here on as it comes.
    pub fn follow(self, which: OutputView, from: ReadStart) -> OutputFollower {
        OutputFollower::new(self, which, from)
    }
}

/// Nothing, where a directory that is expected is not there yet.
fn none_if_expected<T>(expected: bool, result: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match result {
        Err(error) if expected && error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result,
    }
}

impl StdStream {
    /// In the order of their files.
    pub const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];

    fn index(self) -> usize {
        match self {
            Self::Stdout => 0,
            Self::Stderr => 1,
        }
    }
}

impl OutputView {
    /// None for both.
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
    /// Bytes of both streams.
    pub fn combined(&self) -> u64 {
        self.stdout.saturating_add(self.stderr)
    }

    /// Bytes produced in this view.
    pub fn in_view(&self, which: OutputView) -> u64 {
        match which {
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
            // A runtime's claim says that the command was never executed.
            ended: record.phase == ShimPhase::Done || record.claimer == Claimer::Runtime,
        }
    }
}
