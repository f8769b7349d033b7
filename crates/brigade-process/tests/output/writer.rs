//! A writer that imitates the shim, and a reference for the expected output.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use brigade_process::BootId;
use brigade_process::output::{
    OutputRead, OutputView, PagePiece, ProcessOutput, ReadStart, StdStream, ViewPage,
};
use brigade_process::shim::layout::{
    CLAIM, FileLayout, ORDER, PIECE, STREAMS, SWITCH_BYTES, StreamSwitch,
};
use brigade_process::shim::record::{Claimer, ProcessId, ShimPhase, ShimRecord};

pub(crate) const VIEWS: [OutputView; 3] =
    [OutputView::Stdout, OutputView::Stderr, OutputView::Combined];

/// A byte of a view, or `None` if it was dropped.
pub(crate) type SeenByte = Option<(StdStream, u8)>;

pub(crate) struct Writer {
    dir: PathBuf,
    pub(crate) record: ShimRecord,
    claim: File,
    streams: [Option<File>; 2],
    order: Option<File>,
    last: Option<usize>,
}

impl Writer {
    pub(crate) fn new(dir: &Path, cap: u64) -> Self {
        let mut record =
            ShimRecord::new(Claimer::Shim, BootId([1; 16]), ProcessId { pid: 1, start: 1 }, cap);
        record.phase = ShimPhase::Running;
        let draft = dir.join("draft");
        let claim = File::create(&draft).unwrap();
        record.write_to(&claim).unwrap();
        fs::rename(draft, dir.join(CLAIM)).unwrap();
        Self { dir: dir.to_owned(), record, claim, streams: [None, None], order: None, last: None }
    }

    pub(crate) fn put(&mut self, stream: StdStream, bytes: &[u8]) {
        let index = stream as usize;
        for bytes in bytes.chunks(PIECE as usize) {
            self.switch_to(index);
            let mut position = self.record.produced_bytes[index];
            let file = self.streams[index]
                .get_or_insert_with(|| File::create(self.dir.join(STREAMS[index])).unwrap());
            let mut rest = bytes;
            while !rest.is_empty() {
                let range = FileLayout::bytes(self.record.output_cap).locate(position);
                let (part, later) = rest.split_at(rest.len().min(range.contiguous as usize));
                file.write_all_at(part, range.offset).unwrap();
                position += part.len() as u64;
                rest = later;
            }
            self.record.produced_bytes[index] = position;
            self.record.write_to(&self.claim).unwrap();
        }
    }

    pub(crate) fn out(&mut self, text: &str) {
        self.put(StdStream::Stdout, text.as_bytes());
    }

    pub(crate) fn err(&mut self, text: &str) {
        self.put(StdStream::Stderr, text.as_bytes());
    }

    pub(crate) fn end(&mut self) {
        self.record.phase = ShimPhase::Done;
        self.record.write_to(&self.claim).unwrap();
    }

    fn switch_to(&mut self, stream: usize) {
        if self.last.replace(stream) == Some(stream) {
            return;
        }
        let switch = StreamSwitch { stream, at: self.record.produced_bytes };
        let index = FileLayout::switches().locate(self.record.switch_count).offset;
        let order = self.order.get_or_insert_with(|| File::create(self.dir.join(ORDER)).unwrap());
        order.write_all_at(&switch.encode(), index * SWITCH_BYTES).unwrap();
        self.record.switch_count += 1;
    }
}

/// All written bytes, for comparison.
#[derive(Default)]
pub(crate) struct Reference {
    bytes: Vec<(StdStream, u8)>,
}

impl Reference {
    pub(crate) fn put(&mut self, stream: StdStream, bytes: &[u8]) {
        self.bytes.extend(bytes.iter().map(|byte| (stream, *byte)));
    }

    /// Returns the expected view, given a complete order of arrival.
    pub(crate) fn expected_view(&self, view: OutputView, cap: u64) -> Vec<SeenByte> {
        let count = |stream| {
            self.bytes.iter().filter(|(byte_stream, _)| *byte_stream == stream).count() as u64
        };
        let dropped = [StdStream::Stdout, StdStream::Stderr]
            .map(|stream| FileLayout::bytes(cap).dropped_range(count(stream)));
        let mut produced = [0; 2];
        let mut seen = Vec::new();
        for (stream, byte) in &self.bytes {
            let index = *stream as usize;
            if is_in_view(*stream, view) {
                let is_dropped = dropped[index].contains(&produced[index]);
                seen.push((!is_dropped).then_some((*stream, *byte)));
            }
            produced[index] += 1;
        }
        seen
    }
}

fn is_in_view(stream: StdStream, view: OutputView) -> bool {
    match view {
        OutputView::Stdout => stream == StdStream::Stdout,
        OutputView::Stderr => stream == StdStream::Stderr,
        OutputView::Combined => true,
    }
}

/// Returns the bytes of a page, one by one.
pub(crate) fn flatten(page: &ViewPage) -> Vec<SeenByte> {
    let mut seen = Vec::new();
    for piece in &page.pieces {
        match piece {
            PagePiece::Bytes { stream, bytes, .. } => {
                assert!(!bytes.is_empty(), "a piece is not empty");
                seen.extend(bytes.iter().map(|byte| Some((*stream, *byte))));
            }
            PagePiece::Dropped { bytes } => seen.extend((0..*bytes).map(|_| None)),
        }
    }
    assert_eq!(page.next - page.from, seen.len() as u64, "a page is as long as its pieces");
    seen
}

/// Reads a view from a position to its end, page by page.
pub(crate) fn read_all(
    output: &ProcessOutput,
    view: OutputView,
    from: u64,
    max_bytes: usize,
) -> Vec<SeenByte> {
    let mut seen = Vec::new();
    let mut at = from;
    loop {
        let page = output.read(OutputRead { view, start: ReadStart::At(at), max_bytes }).unwrap();
        assert_eq!(page.from, at);
        let part = flatten(&page);
        assert!(part.iter().flatten().count() <= max_bytes.max(1), "no more than requested");
        seen.extend(part);
        at = page.next;
        if page.is_empty() {
            return seen;
        }
    }
}

/// A reproducible sequence of pseudo-random numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn stream(&mut self) -> StdStream {
        if self.below(2) == 0 { StdStream::Stdout } else { StdStream::Stderr }
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Mixes the bits of a number as splitmix64 does.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
