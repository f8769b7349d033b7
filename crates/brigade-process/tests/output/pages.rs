//! Reads by position without a concurrent writer.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;

use brigade_process::output::{
    OutputRead, OutputTotals, OutputView, PagePiece, ProcessOutput, ReadStart, StdStream, ViewPage,
};
use brigade_process::shim::layout::{CLAIM, ORDER, STREAMS};

use crate::writer::{Random, Reference, SeenByte, VIEWS, Writer, flatten, read_all};

const ALL: usize = 1 << 30;

fn read(dir: &Path, view: OutputView, start: ReadStart, max_bytes: usize) -> ViewPage {
    ProcessOutput::open(dir).unwrap().read(OutputRead { view, start, max_bytes }).unwrap()
}

fn write_random(random: &mut Random, dir: &Path, cap: u64) -> Reference {
    let mut writer = Writer::new(dir, cap);
    let mut reference = Reference::default();
    let largest = random.pick(&[1, 30, 3_000, 20_000]);
    for _ in 0..random.below(40) {
        let stream = random.stream();
        let length = 1 + random.below(largest);
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        writer.put(stream, &bytes);
        reference.put(stream, &bytes);
    }
    if random.below(2) == 0 {
        writer.end();
    }
    reference
}

#[test]
fn joined_pages_are_the_written_output_with_dropped_ranges() {
    for seed in 0..80 {
        let random = &mut Random(seed);
        let dir = tempfile::tempdir().unwrap();
        let cap = random.pick(&[0, 1, 2, 7, 100, 1_000, 100_000, 10_000_000]);
        let reference = write_random(random, dir.path(), cap);
        let output = ProcessOutput::open(dir.path()).unwrap();
        for view in VIEWS {
            let expected = reference.expected_view(view, cap);
            let from = random.below(expected.len() as u64 + 1);
            for from in [0, from] {
                let size = random.pick(&[0, 1, 13, 1_000, 70_000, ALL]);
                let size = size.max(expected.len() / 2_000);
                let seen = read_all(&output, view, from, size);
                let same = seen == expected[from as usize..];
                assert!(same, "seed {seed} cap {cap} {view:?} from {from} by {size}");
            }
        }
    }
}

#[test]
fn pieces_have_their_position_in_their_stream() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 1_000);
    writer.out("abc");
    writer.err("de");
    writer.out("fgh");
    let piece = |stream, at, bytes: &str| PagePiece::Bytes { stream, at, bytes: bytes.into() };
    let page = read(dir.path(), OutputView::Combined, ReadStart::At(1), 6);
    let out = StdStream::Stdout;
    let err = StdStream::Stderr;
    assert_eq!(page.pieces, [piece(out, 1, "bc"), piece(err, 0, "de"), piece(out, 3, "fg")]);
    assert_eq!((page.from, page.next, page.total, page.ended), (1, 7, 8, false));
}

#[test]
fn a_start_in_the_dropped_range_begins_with_its_rest() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 10);
    writer.out("01234middle56789");
    writer.end();
    let tail = PagePiece::Bytes { stream: StdStream::Stdout, at: 11, bytes: b"56789".into() };
    for view in [OutputView::Stdout, OutputView::Combined] {
        let page = read(dir.path(), view, ReadStart::At(7), 100);
        assert_eq!(page.pieces, [PagePiece::Dropped { bytes: 4 }, tail.clone()]);
        assert_eq!((page.dropped_bytes(), page.next, page.ended), (4, 16, true));
        let page = read(dir.path(), view, ReadStart::FromEnd(8), 100);
        assert_eq!((page.from, page.dropped_bytes()), (8, 3));
        assert_eq!(read(dir.path(), view, ReadStart::FromEnd(99), 100).from, 0);
    }
}

#[test]
fn only_the_last_page_is_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 100);
    writer.out("abcd");
    assert!(!read(dir.path(), OutputView::Stdout, ReadStart::At(0), 4).ended);
    writer.end();
    assert!(!read(dir.path(), OutputView::Stdout, ReadStart::At(0), 3).ended);
    assert!(read(dir.path(), OutputView::Stdout, ReadStart::At(0), 4).ended);
    assert!(read(dir.path(), OutputView::Stderr, ReadStart::At(0), 4).ended);
    let beyond = read(dir.path(), OutputView::Stdout, ReadStart::At(9), 4);
    assert_eq!((beyond.next, beyond.is_empty(), beyond.ended), (9, true, true));
}

#[test]
fn totals_count_produced_and_unwritten_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let output = ProcessOutput::open(dir.path()).unwrap();
    assert_eq!(output.totals().unwrap(), OutputTotals::default());
    assert!(read(dir.path(), OutputView::Combined, ReadStart::FromEnd(5), 5).is_empty());
    let mut writer = Writer::new(dir.path(), 2);
    writer.out("abc");
    writer.err("de");
    writer.record.unwritten_bytes = [1, 6];
    writer.end();
    let totals = output.totals().unwrap();
    assert_eq!(
        totals,
        OutputTotals { stdout: 3, stderr: 2, unwritten: 7, held_ms: 0, ended: true }
    );
    assert_eq!(VIEWS.map(|view| totals.in_view(view)), [3, 2, 5]);
    assert_eq!(read(dir.path(), OutputView::Combined, ReadStart::At(0), 5).unwritten, 7);
}

#[test]
fn a_segment_of_unknown_order_is_dropped_from_the_combined_view_only() {
    const SWITCHES: usize = 40_000;
    const KEPT: usize = 8 * 1024;
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 1 << 20);
    let mut reference = Reference::default();
    for index in 0..SWITCHES {
        let stream = [StdStream::Stdout, StdStream::Stderr][index % 2];
        writer.put(stream, &[index as u8]);
        reference.put(stream, &[index as u8]);
    }
    let output = ProcessOutput::open(dir.path()).unwrap();
    let mut expected = reference.expected_view(OutputView::Combined, 1 << 20);
    // The last stored entry of the beginning has the stream, but not the length.
    expected[KEPT - 1..SWITCHES - KEPT].fill(None);
    for from in [0, 100, KEPT as u64, 30_000, 31_808, 31_809, 39_990] {
        let seen = read_all(&output, OutputView::Combined, from, 5_000);
        assert!(seen == expected[from as usize..], "from {from}");
    }
    for view in [OutputView::Stdout, OutputView::Stderr] {
        assert!(read_all(&output, view, 0, ALL) == reference.expected_view(view, 1 << 20));
    }
}

#[test]
fn unwritten_bytes_are_marked_as_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 100);
    writer.out("abcdef");
    writer.err("xyz");
    let file = OpenOptions::new().write(true).open(dir.path().join(STREAMS[0])).unwrap();
    file.set_len(2).unwrap();
    fs::remove_file(dir.path().join(STREAMS[1])).unwrap();
    let page = read(dir.path(), OutputView::Combined, ReadStart::At(0), 1_000);
    let stored = b"ab".map(|byte| Some((StdStream::Stdout, byte)));
    let expected: Vec<SeenByte> = stored.into_iter().chain([None; 7]).collect();
    assert_eq!(flatten(&page), expected);
    fs::remove_file(dir.path().join(ORDER)).unwrap();
    assert_eq!(read(dir.path(), OutputView::Combined, ReadStart::At(0), 9).dropped_bytes(), 9);
    assert_eq!(read(dir.path(), OutputView::Stdout, ReadStart::At(0), 9).dropped_bytes(), 4);
}

#[test]
fn a_damaged_record_and_a_missing_directory_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 100);
    writer.out("abc");
    let output = ProcessOutput::open(dir.path()).unwrap();
    let mut bytes = fs::read(dir.path().join(CLAIM)).unwrap();
    bytes[100] ^= 1;
    for damaged in [&bytes[..], &bytes[..500], &[]] {
        fs::write(dir.path().join(CLAIM), damaged).unwrap();
        assert_eq!(ProcessOutput::open(dir.path()).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(output.totals().unwrap_err().kind(), ErrorKind::InvalidData);
    }
    drop(dir);
    let error = output.totals().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("removed"), "{error}");
}
