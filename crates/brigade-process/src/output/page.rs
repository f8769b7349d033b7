//! One read of a view: what is planned from the record, read, and checked against the record again.

use std::io;
use std::ops::Range;
use std::path::Path;

use super::files::{Files, StreamFile};
use super::order::{self, Source, Stretch};
use super::{Read, Start, Stream, Totals, Which, text};
use crate::shim::layout::Layout;
use crate::shim::record::Record;

/// A part of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Where it begins.
    pub from: u64,
    /// Where to read on.
    pub next: u64,
    /// What lies between, in order and without gaps. Neighbours differ in kind or stream.
    pub pieces: Vec<Piece>,
    /// Bytes produced in the view when it was read.
    pub total: u64,
    /// Bytes of either stream that never reached the disk. Above zero, pieces may hold zeros or
    /// older output in their place.
    pub unwritten: u64,
    /// Nothing follows: the output has ended and `next` is its end.
    pub ended: bool,
}

/// A part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Bytes {
        stream: Stream,
        /// Where they lie in their own stream, in either view.
        at: u64,
        bytes: Vec<u8>,
    },
    /// Produced, but not to be had in this view.
    Cut { bytes: u64 },
}

impl Page {
    pub(super) fn nothing(from: Start) -> Self {
        let from = from.resolve(0);
        Self { from, next: from, pieces: Vec::new(), total: 0, unwritten: 0, ended: false }
    }

    /// Neither bytes nor a cut.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes that are marked as cut.
    pub fn cut(&self) -> u64 {
        let cut = |piece: &Piece| match piece {
            Piece::Cut { bytes } => *bytes,
            Piece::Bytes { .. } => 0,
        };
        self.pieces.iter().map(cut).sum()
    }

    /// Leaves a character that the end of the page splits to the next page, so that pages can be
    /// decoded each alone. A page that could not go on otherwise stays as it is.
    pub fn whole_characters(mut self) -> Self {
        let Some(Piece::Bytes { bytes, .. }) = self.pieces.last_mut() else { return self };
        let split = text::unfinished_character(bytes);
        if self.ended || split == 0 {
            return self;
        }
        let would_be_empty = self.next - self.from == split as u64;
        if would_be_empty && self.next < self.total {
            return self;
        }
        bytes.truncate(bytes.len() - split);
        if bytes.is_empty() {
            self.pieces.pop();
        }
        self.next -= split as u64;
        self
    }

    fn push(&mut self, piece: Piece) {
        match (self.pieces.last_mut(), piece) {
            (_, Piece::Cut { bytes: 0 }) => {}
            (Some(Piece::Cut { bytes }), Piece::Cut { bytes: more }) => *bytes += more,
            (
                Some(Piece::Bytes { stream, bytes, .. }),
                Piece::Bytes { stream: on, bytes: more, .. },
            ) if *stream == on => {
                bytes.extend_from_slice(&more);
            }
            (_, piece) => self.pieces.push(piece),
        }
    }
}

/// None when there is no record yet.
pub(super) fn read(dir: &Path, read: Read) -> io::Result<Option<Page>> {
    let Some(files) = Files::open(dir)? else { return Ok(None) };
    let record = files.record()?;
    let totals = Totals::of_record(&record);
    let total = totals.of(read.which);
    let from = read.from.resolve(total);
    let stretches = match read.which.alone() {
        Some(stream) => vec![Stretch {
            source: Source::Stream { stream, at: from },
            length: total.saturating_sub(from),
        }],
        None => order::stretches(&files, &record, from)?,
    };
    let mut reading = Reading::new(&files, &record, read)?;
    for stretch in stretches {
        if !reading.stretch(stretch)? {
            break;
        }
    }
    let runs = reading.runs;
    let unwritten = totals.unwritten;
    let mut page = Page { from, next: from, pieces: Vec::new(), total, unwritten, ended: false };
    let now = files.record()?;
    for run in runs {
        page.next += run.length();
        run.checked(&now, &mut page);
    }
    page.ended = totals.ended && page.next >= total;
    Ok(Some(page))
}

/// Bytes that lie together in a file, or a cut.
#[derive(Debug)]
enum Run {
    Bytes { stream: Stream, at: u64, bytes: Vec<u8> },
    Cut { bytes: u64 },
}

impl Run {
    fn length(&self) -> u64 {
        match self {
            Self::Bytes { bytes, .. } => bytes.len() as u64,
            Self::Cut { bytes } => *bytes,
        }
    }

    /// What of it was certainly not overwritten before this record was read.
    fn checked(self, now: &Record, page: &mut Page) {
        match self {
            Self::Cut { bytes } => page.push(Piece::Cut { bytes }),
            Self::Bytes { stream, at, mut bytes } => {
                let dropped = Layout::bytes(now.cap).dropped(now.produced[stream.index()]);
                // A run lies in the head or in the ring, so what it lost is its beginning.
                let lost = overlap(&(at..at + bytes.len() as u64), &dropped);
                let lost = lost.end - lost.start;
                page.push(Piece::Cut { bytes: lost });
                bytes.drain(..lost as usize);
                if !bytes.is_empty() {
                    page.push(Piece::Bytes { stream, at: at + lost, bytes });
                }
            }
        }
    }
}

struct Reading<'a> {
    record: &'a Record,
    streams: [Option<StreamFile>; 2],
    budget: usize,
    runs: Vec<Run>,
}

impl<'a> Reading<'a> {
    fn new(files: &Files<'_>, record: &'a Record, read: Read) -> io::Result<Self> {
        let wanted = |stream: Stream| match read.which {
            Which::Combined => true,
            Which::Stdout => stream == Stream::Stdout,
            Which::Stderr => stream == Stream::Stderr,
        };
        let mut streams = [None, None];
        for stream in Stream::BOTH {
            if wanted(stream) && record.produced[stream.index()] > 0 {
                streams[stream.index()] = Some(files.stream(stream, record.cap)?);
            }
        }
        Ok(Self { record, streams, budget: read.max_bytes.max(1), runs: Vec::new() })
    }

    /// False when no more fits.
    fn stretch(&mut self, stretch: Stretch) -> io::Result<bool> {
        let Source::Stream { stream, at } = stretch.source else {
            return Ok(self.cut(stretch.length));
        };
        let end = at + stretch.length;
        let dropped = Layout::bytes(self.record.cap).dropped(self.record.produced[stream.index()]);
        let dropped = overlap(&(at..end), &dropped);
        if dropped.is_empty() {
            return self.kept(stream, at..end);
        }
        Ok(self.kept(stream, at..dropped.start)?
            && self.cut(dropped.end - dropped.start)
            && self.kept(stream, dropped.end..end)?)
    }

    fn cut(&mut self, bytes: u64) -> bool {
        if self.budget > 0 && bytes > 0 {
            self.runs.push(Run::Cut { bytes });
        }
        self.budget > 0
    }

    fn kept(&mut self, stream: Stream, mut range: Range<u64>) -> io::Result<bool> {
        let Some(file) = &self.streams[stream.index()] else { return Ok(self.budget > 0) };
        while !range.is_empty() && self.budget > 0 {
            let together = file.run(range.start).min(range.end - range.start);
            let wanted = usize::try_from(together).unwrap_or(usize::MAX).min(self.budget);
            let bytes = file.read(range.start, wanted)?;
            let got = bytes.len();
            if got > 0 {
                self.runs.push(Run::Bytes { stream, at: range.start, bytes });
            }
            self.budget -= got;
            range.start += got as u64;
            if got < wanted {
                // The file ends here, so the rest of the run was never written.
                let lacking = together - got as u64;
                self.runs.push(Run::Cut { bytes: lacking });
                range.start += lacking;
            }
        }
        Ok(self.budget > 0)
    }
}

/// The common part; empty, at the beginning of the first, when there is none.
fn overlap(first: &Range<u64>, second: &Range<u64>) -> Range<u64> {
    let (start, end) = (first.start.max(second.start), first.end.min(second.end));
    if start < end { start..end } else { first.start..first.start }
}
