//! One read of a view: what is planned from the record, read, and checked against the record again.

use std::io;
use std::ops::Range;
use std::path::Path;

use super::arrival_order::{self, SegmentSource, ViewSegment};
use super::files::{ShimFiles, StreamFile};
use super::{OutputRead, OutputTotals, OutputView, ReadStart, StdStream, text};
use crate::shim::layout::FileLayout;
use crate::shim::record::ShimRecord;

/// A part of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewPage {
    /// Where it begins.
    pub from: u64,
    /// Where to read on.
    pub next: u64,
    /// What lies between, in order and without gaps. Neighbours differ in kind or stream.
    pub pieces: Vec<PagePiece>,
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
pub enum PagePiece {
    Bytes {
        stream: StdStream,
        /// Where they lie in their own stream, in either view.
        at: u64,
        bytes: Vec<u8>,
    },
    /// Produced, but not to be had in this view.
    Dropped { bytes: u64 },
}

impl ViewPage {
    pub(super) fn empty(from: ReadStart) -> Self {
        let from = from.resolve(0);
        Self { from, next: from, pieces: Vec::new(), total: 0, unwritten: 0, ended: false }
    }

    /// Neither bytes nor a cut.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes that are marked as cut.
    pub fn dropped_bytes(&self) -> u64 {
        let cut = |piece: &PagePiece| match piece {
            PagePiece::Dropped { bytes } => *bytes,
            PagePiece::Bytes { .. } => 0,
        };
        self.pieces.iter().map(cut).sum()
    }

    /// Leaves a character that the end of the page splits to the next page, so that pages can be
    /// decoded each alone. A page that could not go on otherwise stays as it is.
    pub fn end_on_character(mut self) -> Self {
        let Some(PagePiece::Bytes { bytes, .. }) = self.pieces.last_mut() else { return self };
        let split = text::incomplete_character_bytes(bytes);
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

    fn push(&mut self, piece: PagePiece) {
        match (self.pieces.last_mut(), piece) {
            (_, PagePiece::Dropped { bytes: 0 }) => {}
            (Some(PagePiece::Dropped { bytes }), PagePiece::Dropped { bytes: more }) => {
                *bytes += more
            }
            (
                Some(PagePiece::Bytes { stream, bytes, .. }),
                PagePiece::Bytes { stream: on, bytes: more, .. },
            ) if *stream == on => {
                bytes.extend_from_slice(&more);
            }
            (_, piece) => self.pieces.push(piece),
        }
    }
}

/// None when there is no record yet.
pub(super) fn read_page(dir: &Path, read: OutputRead) -> io::Result<Option<ViewPage>> {
    let Some(files) = ShimFiles::open(dir)? else { return Ok(None) };
    let record = files.record()?;
    let totals = OutputTotals::from_record(&record);
    let total = totals.in_view(read.view);
    let from = read.start.resolve(total);
    let stretches = match read.view.single_stream() {
        Some(stream) => vec![ViewSegment {
            source: SegmentSource::Stream { stream, at: from },
            length: total.saturating_sub(from),
        }],
        None => arrival_order::read_segments(&files, &record, from)?,
    };
    let mut reading = PageReader::new(&files, &record, read)?;
    for stretch in stretches {
        if !reading.read_segment(stretch)? {
            break;
        }
    }
    let runs = reading.runs;
    let unwritten = totals.unwritten;
    let mut page =
        ViewPage { from, next: from, pieces: Vec::new(), total, unwritten, ended: false };
    let now = files.record()?;
    for run in runs {
        page.next += run.length();
        run.push_checked(&now, &mut page);
    }
    page.ended = totals.ended && page.next >= total;
    Ok(Some(page))
}

/// Bytes that lie together in a file, or a cut.
#[derive(Debug)]
enum ByteRun {
    Bytes { stream: StdStream, at: u64, bytes: Vec<u8> },
    Dropped { bytes: u64 },
}

impl ByteRun {
    fn length(&self) -> u64 {
        match self {
            Self::Bytes { bytes, .. } => bytes.len() as u64,
            Self::Dropped { bytes } => *bytes,
        }
    }

    /// What of it was certainly not overwritten before this record was read.
    fn push_checked(self, now: &ShimRecord, page: &mut ViewPage) {
        match self {
            Self::Dropped { bytes } => page.push(PagePiece::Dropped { bytes }),
            Self::Bytes { stream, at, mut bytes } => {
                let dropped = FileLayout::bytes(now.output_cap)
                    .dropped_range(now.produced_bytes[stream.index()]);
                // A run lies in the head or in the ring, so what it lost is its beginning.
                let lost = overlap(&(at..at + bytes.len() as u64), &dropped);
                let lost = lost.end - lost.start;
                page.push(PagePiece::Dropped { bytes: lost });
                bytes.drain(..lost as usize);
                if !bytes.is_empty() {
                    page.push(PagePiece::Bytes { stream, at: at + lost, bytes });
                }
            }
        }
    }
}

struct PageReader<'a> {
    record: &'a ShimRecord,
    streams: [Option<StreamFile>; 2],
    remaining_bytes: usize,
    runs: Vec<ByteRun>,
}

impl<'a> PageReader<'a> {
    fn new(files: &ShimFiles<'_>, record: &'a ShimRecord, read: OutputRead) -> io::Result<Self> {
        let wanted = |stream: StdStream| match read.view {
            OutputView::Combined => true,
            OutputView::Stdout => stream == StdStream::Stdout,
            OutputView::Stderr => stream == StdStream::Stderr,
        };
        let mut streams = [None, None];
        for stream in StdStream::BOTH {
            if wanted(stream) && record.produced_bytes[stream.index()] > 0 {
                streams[stream.index()] = Some(files.stream(stream, record.output_cap)?);
            }
        }
        Ok(Self { record, streams, remaining_bytes: read.max_bytes.max(1), runs: Vec::new() })
    }

    /// False when no more fits.
    fn read_segment(&mut self, stretch: ViewSegment) -> io::Result<bool> {
        let SegmentSource::Stream { stream, at } = stretch.source else {
            return Ok(self.push_dropped(stretch.length));
        };
        let end = at + stretch.length;
        let dropped = FileLayout::bytes(self.record.output_cap)
            .dropped_range(self.record.produced_bytes[stream.index()]);
        let dropped = overlap(&(at..end), &dropped);
        if dropped.is_empty() {
            return self.read_kept(stream, at..end);
        }
        Ok(self.read_kept(stream, at..dropped.start)?
            && self.push_dropped(dropped.end - dropped.start)
            && self.read_kept(stream, dropped.end..end)?)
    }

    fn push_dropped(&mut self, bytes: u64) -> bool {
        if self.remaining_bytes > 0 && bytes > 0 {
            self.runs.push(ByteRun::Dropped { bytes });
        }
        self.remaining_bytes > 0
    }

    fn read_kept(&mut self, stream: StdStream, mut range: Range<u64>) -> io::Result<bool> {
        let Some(file) = &self.streams[stream.index()] else { return Ok(self.remaining_bytes > 0) };
        while !range.is_empty() && self.remaining_bytes > 0 {
            let together = file.contiguous_length(range.start).min(range.end - range.start);
            let wanted = usize::try_from(together).unwrap_or(usize::MAX).min(self.remaining_bytes);
            let bytes = file.read(range.start, wanted)?;
            let got = bytes.len();
            if got > 0 {
                self.runs.push(ByteRun::Bytes { stream, at: range.start, bytes });
            }
            self.remaining_bytes -= got;
            range.start += got as u64;
            if got < wanted {
                // The file ends here, so the rest of the run was never written.
                let lacking = together - got as u64;
                self.runs.push(ByteRun::Dropped { bytes: lacking });
                range.start += lacking;
            }
        }
        Ok(self.remaining_bytes > 0)
    }
}

/// The common part; empty, at the beginning of the first, when there is none.
fn overlap(first: &Range<u64>, second: &Range<u64>) -> Range<u64> {
    let (start, end) = (first.start.max(second.start), first.end.min(second.end));
    if start < end { start..end } else { first.start..first.start }
}
