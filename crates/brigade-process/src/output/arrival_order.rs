//! The order of arrival, from the order file.
//!
//! Each entry is a point: how much both streams had produced at one moment. Between two points in
//! which only one stream grew, the order is known, whatever lies between them in the file. Where
//! both grew, entries are missing and the order is not known. So an entry that was dropped, never
//! written or left from an earlier round of the ring costs a cut and never puts a byte in a wrong
//! place.

use std::fs::File;
use std::io;
use std::ops::Range;

use super::StdStream;
use super::files::{ShimFiles, read_switches};
use crate::shim::layout::{FileLayout, SWITCH_BYTES, StreamSwitch};
use crate::shim::record::ShimRecord;

/// Entries that are read at once.
const BLOCK_ENTRIES: u64 = 512;

/// A part of a view without a break.
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
    /// Bytes of both streams in an order that is not known.
    Unordered,
}

type StreamPositions = [u64; 2];

/// What the combined view holds from this position to the end of what the record tells.
pub(super) fn read_segments(
    files: &ShimFiles<'_>,
    record: &ShimRecord,
    from: u64,
) -> io::Result<Vec<ViewSegment>> {
    let mut points = match files.order()? {
        Some(file) => read_points(&file, record.switch_count, from)?,
        None => Vec::new(),
    };
    // The ring may have gone on under the reader, and what it overwrote may be torn.
    let overwritten = FileLayout::switches().dropped_range(files.record()?.switch_count);
    points.retain(|(index, _)| !overwritten.contains(index));
    Ok(segments_between(points.into_iter().map(|(_, point)| point), record.produced_bytes, from))
}

/// Kept points with their index: all from `from` on, and at least one before it if there is one.
fn read_points(file: &File, switches: u64, from: u64) -> io::Result<Vec<(u64, StreamPositions)>> {
    let dropped = FileLayout::switches().dropped_range(switches);
    let mut blocks = Vec::new();
    for kept in [dropped.end..switches, 0..dropped.start.min(switches)] {
        let mut end = kept.end;
        while end > kept.start {
            let block = read_block(file, block_before(&kept, end))?;
            end = end.saturating_sub(BLOCK_ENTRIES).max(kept.start);
            let reached = block.first().is_some_and(|(_, point)| total_bytes(*point) <= from);
            blocks.push(block);
            // The oldest of the tail may be overwritten at any moment; then a point of the head
            // has to do, so the tail alone is enough only with a whole block to spare.
            if reached && (kept.start == 0 || end > kept.start + BLOCK_ENTRIES) {
                return Ok(concat_blocks(blocks));
            }
        }
    }
    Ok(concat_blocks(blocks))
}

fn block_before(kept: &Range<u64>, end: u64) -> Range<u64> {
    end.saturating_sub(BLOCK_ENTRIES).max(kept.start)..end
}

fn concat_blocks(blocks: Vec<Vec<(u64, StreamPositions)>>) -> Vec<(u64, StreamPositions)> {
    blocks.into_iter().rev().flatten().collect()
}

fn read_block(file: &File, indexes: Range<u64>) -> io::Result<Vec<(u64, StreamPositions)>> {
    let mut points = Vec::with_capacity((indexes.end - indexes.start) as usize);
    let mut index = indexes.start;
    while index < indexes.end {
        let (place, run) = FileLayout::switches().locate(index);
        let count = run.min(indexes.end - index);
        let bytes = read_switches(file, place, count)?;
        let (entries, _) = bytes.as_chunks::<{ SWITCH_BYTES as usize }>();
        points.extend((index..).zip(entries.iter().map(|entry| StreamSwitch::decode(entry).at)));
        index += count;
    }
    Ok(points)
}

/// The stretches between points that lie on one way from nothing to `end`.
fn segments_between(
    points: impl Iterator<Item = StreamPositions>,
    end: StreamPositions,
    from: u64,
) -> Vec<ViewSegment> {
    let mut stretches = Vec::new();
    let mut last = [0; 2];
    for point in points.filter(|point| is_not_after(*point, end)).chain([end]) {
        if !is_not_after(last, point) || point == last {
            continue;
        }
        if total_bytes(point) > from {
            stretches.push(segment_between(last, point, from));
        }
        last = point;
    }
    stretches
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
    fn points_tell_the_order_and_gaps_do_not() {
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
        // An entry from an earlier round, and one that nothing can reach.
        let stale = [[0, 0], [5, 0], [0, 0], [9, 9], [5, 4]];
        check(&stale, [6, 4], 0, &[stdout(0, 5), stderr(0, 4), stdout(5, 1)]);
    }
}
