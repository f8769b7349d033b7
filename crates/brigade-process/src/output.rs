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

mod files;
mod follow;
mod lines;
mod order;
mod page;
mod search;
mod text;
mod watch;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use follow::Follow;
pub use page::{Page, Piece};
pub use search::{Found, Line, Resume, Search, SearchError};
pub use text::{TextDecoder, text};

use crate::shim::record::{Claimer, Phase, Record};
use files::Files;

/// The output of one command. Cheap to clone; it holds no open files.
#[derive(Clone, Debug)]
pub struct Output {
    dir: Arc<Path>,
    /// Whether the directory may be yet to come. Otherwise it was there, and its absence is removal.
    expected: bool,
}

/// One of a command's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// What to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    Stdout,
    Stderr,
    /// Both streams in the order of arrival.
    Combined,
}

/// Where to begin in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this many bytes after the beginning. Beyond the end there is nothing yet.
    At(u64),
    /// This many bytes before what is the end at the moment, or at the beginning if there are fewer.
    FromEnd(u64),
}

/// One read of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub which: Which,
    pub from: Start,
    /// The most bytes to hand out; at least one is. Cuts do not count.
    pub max_bytes: usize,
}

/// How much there is, kept or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub stdout: u64,
    pub stderr: u64,
    /// Bytes of either stream that could not be written to the disk.
    pub unwritten: u64,
    /// How long output has waited for a reader who must not miss anything, in milliseconds.
    pub held_ms: u64,
    /// Nothing more will come. It stays false when the shim was killed.
    pub ended: bool,
}

impl Output {
    /// Of the shim with this directory. One without a record yet reads as empty output.
    pub fn open(dir: &Path) -> io::Result<Self> {
        Files::open(dir)?.map(|files| files.record()).transpose()?;
        Ok(Self { dir: Arc::from(dir), expected: false })
    }

    /// Of a shim that may not have been started: until its directory is there it reads as empty.
    pub fn expected(dir: &Path) -> Self {
        Self { dir: Arc::from(dir), expected: true }
    }

    /// How much there is at the moment.
    pub fn totals(&self) -> io::Result<Totals> {
        let files = if_made(self.expected, Files::open(&self.dir))?;
        let record = files.map(|files| files.record()).transpose()?;
        Ok(record.as_ref().map(Totals::of_record).unwrap_or_default())
    }

    /// One page of a view. Blocks no longer than reading the bytes takes.
    pub fn read(&self, read: Read) -> io::Result<Page> {
        Ok(if_made(self.expected, page::read(&self.dir, read))?
            .unwrap_or_else(|| Page::nothing(read.from)))
    }

    /// The last output of both streams as text, of at most this many bytes before decoding. It
    /// begins with a line where one begins in reach, else with a character.
    pub fn tail_text(&self, max_bytes: usize) -> io::Result<String> {
        text::tail(self, max_bytes)
    }

    /// The lines that match a pattern, among what is kept. Reads as far as it must, and blocks.
    pub fn search(&self, search: Search<'_>) -> Result<Found, SearchError> {
        search::search(self, &search)
    }

    /// Hands out the output from here on as it comes.
    pub fn follow(self, which: Which, from: Start) -> Follow {
        Follow::new(self, which, from)
    }
}

/// Nothing, where a directory that is expected is not there yet.
fn if_made<T>(expected: bool, result: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match result {
        Err(error) if expected && error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result,
    }
}

impl Stream {
    /// In the order of their files.
    pub const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];

    fn index(self) -> usize {
        match self {
            Self::Stdout => 0,
            Self::Stderr => 1,
        }
    }
}

impl Which {
    /// None for both.
    fn alone(self) -> Option<Stream> {
        match self {
            Self::Stdout => Some(Stream::Stdout),
            Self::Stderr => Some(Stream::Stderr),
            Self::Combined => None,
        }
    }
}

impl Start {
    fn resolve(self, total: u64) -> u64 {
        match self {
            Self::At(position) => position,
            Self::FromEnd(bytes) => total.saturating_sub(bytes),
        }
    }
}

impl Totals {
    /// Bytes of both streams.
    pub fn combined(&self) -> u64 {
        self.stdout.saturating_add(self.stderr)
    }

    /// Bytes produced in this view.
    pub fn of(&self, which: Which) -> u64 {
        match which {
            Which::Stdout => self.stdout,
            Which::Stderr => self.stderr,
            Which::Combined => self.combined(),
        }
    }

    fn of_record(record: &Record) -> Self {
        let [stdout, stderr] = record.produced;
        Self {
            stdout,
            stderr,
            unwritten: record.unwritten[0].saturating_add(record.unwritten[1]),
            held_ms: record.held_ms,
            // A runtime's claim says that the command was never executed.
            ended: record.phase == Phase::Done || record.claimer == Claimer::Runtime,
        }
    }
}
