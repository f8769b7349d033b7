//! The order of arrival, from the order file.
//!
//! Each entry holds the bytes that both streams had produced at one moment. If only one stream grew
//! between two entries, the order is known, even if other entries between them are missing. If both
//! grew, entries are missing and the order is unknown. So a dropped, unwritten or stale entry of
//! the ring costs a `Dropped` piece, but never puts a byte in the wrong place.

use std::fs::File;
use std::io;
use std::ops::Range;

use super::StdStream;
use super::files::{ShimFiles, read_switches};
use crate::shim::layout::{FileLayout, SWITCH_BYTES, StreamSwitch};
use crate::shim::record::ShimRecord;

/// The number of entries in one read.
const BLOCK_ENTRIES: u64 = 512;

/// A contiguous part of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ViewSegment {
    pub(super) source: SegmentSource,
    pub(super) length: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentSource {
    Stream {
        stream: StdStream,
        at: u64,
    },
    /// Bytes of both streams in an unknown order.
    Unordered,
}

type StreamPositions = [u64; 2];

/// An entry of the order file.
#[derive(Clone, Copy, Debug)]
struct IndexedPositions {
    index: u64,
    positions: StreamPositions,
}

/// Returns the segments of the combined view from this position to the end of the record's totals.
pub(super) fn read_segments(
    files: &ShimFiles<'_>,
    record: &ShimRecord,
    from: u64,
) -> io::Result<Vec<ViewSegment>> {
    let mut points = match files.order()? {
        Some(file) => read_points(&file, record.switch_count, from)?,
        None => Vec::new(),
    };
    // The shim may have overwritten entries during the read, and those may be torn.
    let overwritten = FileLayout::switches().dropped_range(files.record()?.switch_count);
    points.retain(|point| !overwritten.contains(&point.index));
    let positions = points.into_iter().map(|point| point.positions);
    Ok(segments_between(positions, record.produced_bytes, from))
}

/// Returns all stored positions from `from` on, with at least one before it if there is one.
fn read_points(file: &File, switches: u64, from: u64) -> io::Result<Vec<IndexedPositions>> {
    let dropped = FileLayout::switches().dropped_range(switches);
    let mut blocks = Vec::new();
    for range in [dropped.end..switches, 0..dropped.start.min(switches)] {
        let mut end = range.end;
        while end > range.start {
            let block = read_block(file, block_before(&range, end))?;
            end = end.saturating_sub(BLOCK_ENTRIES).max(range.start);
            let reached = block.first().is_some_and(|point| total_bytes(point.positions) <= from);
            blocks.push(block);
            // The oldest entries of the tail may be overwritten at any moment. So the tail alone is
            // enough only with a whole spare block; otherwise an entry of the head is needed too.
            if reached && (range.start == 0 || end > range.start + BLOCK_ENTRIES) {
                return Ok(concat_blocks(blocks));
            }
        }
    }
    Ok(concat_blocks(blocks))
}

fn block_before(range: &Range<u64>, end: u64) -> Range<u64> {
    end.saturating_sub(BLOCK_ENTRIES).max(range.start)..end
}

fn concat_blocks(blocks: Vec<Vec<IndexedPositions>>) -> Vec<IndexedPositions> {
    blocks.into_iter().rev().flatten().collect()
}

fn read_block(file: &File, indexes: Range<u64>) -> io::Result<Vec<IndexedPositions>> {
    let mut points = Vec::with_capacity((indexes.end - indexes.start) as usize);
    let mut index = indexes.start;
    while index < indexes.end {
        let range = FileLayout::switches().locate(index);
        let count = range.contiguous.min(indexes.end - index);
        let bytes = read_switches(file, range.offset, count)?;
        let (entries, _) = bytes.as_chunks::<{ SWITCH_BYTES as usize }>();
        let positions = entries.iter().map(|entry| StreamSwitch::decode(entry).at);
        points.extend(
            (index..)
                .zip(positions)
                .map(|(index, positions)| IndexedPositions { index, positions }),
        );
        index += count;
    }
    Ok(points)
}

/// Returns the segments between the positions that lie on one path from zero to `end`.
fn segments_between(
    points: impl Iterator<Item = StreamPositions>,
    end: StreamPositions,
    from: u64,
) -> Vec<ViewSegment> {
    let mut segments = Vec::new();
    let mut last = [0; 2];
    for point in points.filter(|point| is_not_after(*point, end)).chain([end]) {
        if !is_not_after(last, point) || point == last {
            continue;
        }
        if total_bytes(point) > from {
            segments.push(segment_between(last, point, from));
        }
        last = point;
    }
    segments
}

fn segment_between(first: StreamPositions, next: StreamPositions, from: u64) -> ViewSegment {
    let skipped = from.saturating_sub(total_bytes(first));
    let source =
        |stream: StdStream| SegmentSource::Stream { stream, at: first[stream.index()] + skipped };
    let source = match (next[0] > first[0], next[1] > first[1]) {
        (true, true) => SegmentSource::Unordered,
        (true, false) => source(StdStream::Stdout),
        (false, _) => source(StdStream::Stderr),
    };
    ViewSegment { source, length: total_bytes(next) - total_bytes(first) - skipped }
}

fn is_not_after(point: StreamPositions, later: StreamPositions) -> bool {
    point[0] <= later[0] && point[1] <= later[1]
}

fn total_bytes(point: StreamPositions) -> u64 {
    point[0].saturating_add(point[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stdout(at: u64, length: u64) -> ViewSegment {
        ViewSegment { source: SegmentSource::Stream { stream: StdStream::Stdout, at }, length }
    }

    fn stderr(at: u64, length: u64) -> ViewSegment {
        ViewSegment { source: SegmentSource::Stream { stream: StdStream::Stderr, at }, length }
    }

    fn unordered(length: u64) -> ViewSegment {
        ViewSegment { source: SegmentSource::Unordered, length }
    }

    #[test]
    fn the_order_is_known_between_positions_without_gaps() {
        let check = |points: &[StreamPositions], end, from, expected: &[ViewSegment]| {
            assert_eq!(
                segments_between(points.iter().copied(), end, from),
                expected,
                "{points:?} {from}"
            );
        };
        check(&[], [0, 0], 0, &[]);
        check(&[], [5, 0], 0, &[stdout(0, 5)]);
        check(&[], [5, 4], 2, &[unordered(7)]);
        let points = [[0, 0], [5, 0], [5, 4], [6, 4]];
        check(&points, [6, 9], 0, &[stdout(0, 5), stderr(0, 4), stdout(5, 1), stderr(4, 5)]);
        check(&points, [6, 9], 7, &[stderr(2, 2), stdout(5, 1), stderr(4, 5)]);
        check(&points, [6, 9], 15, &[]);
        check(&points, [6, 9], 40, &[]);
        // A stale entry, and one beyond the end.
        let stale = [[0, 0], [5, 0], [0, 0], [9, 9], [5, 4]];
        check(&stale, [6, 4], 0, &[stdout(0, 5), stderr(0, 4), stdout(5, 1)]);
    }
}
