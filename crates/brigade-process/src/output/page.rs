//! One read of a view: planned by the record, read, and checked against the record again.

use std::io;
use std::ops::Range;
use std::path::Path;

use super::arrival_order::{self, SegmentSource, ViewSegment};
use super::files::{ShimFiles, StreamFile};
use super::{OutputRead, OutputTotals, OutputView, ReadStart, StdStream, text};
use crate::shim::layout::FileLayout;
use crate::shim::record::ShimRecord;

/// A contiguous part of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewPage {
    /// The position of the first byte.
    pub from: u64,
    /// The position of the next read.
    pub next: u64,
    /// The pieces of the page, in order and without gaps. Neighbours differ in kind or stream.
    pub pieces: Vec<PagePiece>,
    /// The bytes produced in the view at the time of the read.
    pub total: u64,
    /// The bytes of both streams that never reached the disk. If above zero, pieces may hold zeros
    /// or older output instead.
    pub unwritten: u64,
    /// True if the output has ended and `next` is its end.
    pub ended: bool,
}

/// A part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagePiece {
    Bytes {
        stream: StdStream,
        /// The position in the stream, in either view.
        at: u64,
        bytes: Vec<u8>,
    },
    /// Bytes that were produced but are not available in this view.
    Dropped { bytes: u64 },
}

impl ViewPage {
    pub(super) fn empty(from: ReadStart) -> Self {
        let from = from.resolve(0);
        Self { from, next: from, pieces: Vec::new(), total: 0, unwritten: 0, ended: false }
    }

    /// Returns true for a page without bytes and without dropped bytes.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the number of dropped bytes.
    pub fn dropped_bytes(&self) -> u64 {
        let dropped = |piece: &PagePiece| match piece {
            PagePiece::Dropped { bytes } => *bytes,
            PagePiece::Bytes { .. } => 0,
        };
        self.pieces.iter().map(dropped).sum()
    }

    /// Moves an incomplete character at the end to the next page, so that each page can be decoded
    /// alone. Does nothing if the page would become empty although more output follows.
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
                PagePiece::Bytes { stream: next_stream, bytes: more, .. },
            ) if *stream == next_stream => {
                bytes.extend_from_slice(&more);
            }
            (_, piece) => self.pieces.push(piece),
        }
    }
}

/// Reads one page. Returns `None` if there is no record yet.
pub(super) fn read_page(dir: &Path, read: OutputRead) -> io::Result<Option<ViewPage>> {
    let Some(files) = ShimFiles::open(dir)? else { return Ok(None) };
    let record = files.record()?;
    let totals = OutputTotals::from_record(&record);
    let total = totals.in_view(read.view);
    let from = read.start.resolve(total);
    let segments = match read.view.single_stream() {
        Some(stream) => vec![ViewSegment {
            source: SegmentSource::Stream { stream, at: from },
            length: total.saturating_sub(from),
        }],
        None => arrival_order::read_segments(&files, &record, from)?,
    };
    let mut reader = PageReader::new(&files, &record, read)?;
    for segment in segments {
        if !reader.read_segment(segment)? {
            break;
        }
    }
    let runs = reader.runs;
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

/// Contiguous bytes of a file, or dropped bytes.
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

    /// Adds the bytes that were certainly not overwritten before this record was read.
    fn push_checked(self, now: &ShimRecord, page: &mut ViewPage) {
        match self {
            Self::Dropped { bytes } => page.push(PagePiece::Dropped { bytes }),
            Self::Bytes { stream, at, mut bytes } => {
                let dropped = FileLayout::bytes(now.output_cap)
                    .dropped_range(now.produced_bytes[stream.index()]);
                // A run is in the head or in the ring, so its overwritten bytes are at its
                // beginning.
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

    /// Reads one segment. Returns false if the page is full.
    fn read_segment(&mut self, segment: ViewSegment) -> io::Result<bool> {
        let SegmentSource::Stream { stream, at } = segment.source else {
            return Ok(self.push_dropped(segment.length));
        };
        let end = at + segment.length;
        let dropped = FileLayout::bytes(self.record.output_cap)
            .dropped_range(self.record.produced_bytes[stream.index()]);
        let dropped = overlap(&(at..end), &dropped);
        if dropped.is_empty() {
            return self.read_stored(stream, at..end);
        }
        Ok(self.read_stored(stream, at..dropped.start)?
            && self.push_dropped(dropped.end - dropped.start)
            && self.read_stored(stream, dropped.end..end)?)
    }

    fn push_dropped(&mut self, bytes: u64) -> bool {
        if self.remaining_bytes > 0 && bytes > 0 {
            self.runs.push(ByteRun::Dropped { bytes });
        }
        self.remaining_bytes > 0
    }

    fn read_stored(&mut self, stream: StdStream, mut range: Range<u64>) -> io::Result<bool> {
        let Some(file) = &self.streams[stream.index()] else { return Ok(self.remaining_bytes > 0) };
        while !range.is_empty() && self.remaining_bytes > 0 {
            let contiguous = file.contiguous_length(range.start).min(range.end - range.start);
            let wanted =
                usize::try_from(contiguous).unwrap_or(usize::MAX).min(self.remaining_bytes);
            let bytes = file.read(range.start, wanted)?;
            let read = bytes.len();
            if read > 0 {
                self.runs.push(ByteRun::Bytes { stream, at: range.start, bytes });
            }
            self.remaining_bytes -= read;
            range.start += read as u64;
            if read < wanted {
                // The file ends here, so the remaining bytes of the run were never written.
                let missing = contiguous - read as u64;
                self.runs.push(ByteRun::Dropped { bytes: missing });
                range.start += missing;
            }
        }
        Ok(self.remaining_bytes > 0)
    }
}

/// Returns the intersection. If there is none, it is empty and at the start of the first range.
fn overlap(first: &Range<u64>, second: &Range<u64>) -> Range<u64> {
    let start = first.start.max(second.start);
    let end = first.end.min(second.end);
    if start < end { start..end } else { first.start..first.start }
}
