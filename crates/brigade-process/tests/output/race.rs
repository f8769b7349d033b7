//! Reads during writes at full speed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use brigade_process::output::{
    OutputRead, OutputView, PagePiece, ProcessOutput, ReadStart, StdStream, ViewPage,
};

use crate::writer::{Random, VIEWS, Writer, mix};

/// The planned output. Each byte and its place follow from its position.
struct Plan {
    cap: u64,
    /// The stream, the positions in it and in both streams, and the length.
    chunks: Vec<(StdStream, u64, u64, u64)>,
}

impl Plan {
    fn new(cap: u64, count: usize, longest: u64) -> Self {
        let random = &mut Random(cap);
        let mut produced = [0; 2];
        let mut chunks = Vec::new();
        for _ in 0..count {
            let stream = random.stream();
            let length = 1 + random.below(longest);
            let at = produced[stream as usize];
            chunks.push((stream, at, produced[0] + produced[1], length));
            produced[stream as usize] += length;
        }
        Self { cap, chunks }
    }

    fn write(&self, writer: &mut Writer) {
        for (stream, at, _, length) in &self.chunks {
            let bytes: Vec<u8> = (*at..at + length).map(|at| byte(*stream, at)).collect();
            writer.put(*stream, &bytes);
        }
        writer.end();
    }

    /// Returns the byte at this position of the combined view.
    fn byte_at(&self, position: u64) -> (StdStream, u64) {
        let index = self.chunks.partition_point(|(_, _, begin, _)| *begin <= position) - 1;
        let (stream, at, begin, _) = self.chunks[index];
        (stream, at + position - begin)
    }

    fn check(&self, view: OutputView, page: &ViewPage) -> u64 {
        let mut position = page.from;
        let mut checked = 0;
        for piece in &page.pieces {
            match piece {
                PagePiece::Dropped { bytes } => position += bytes,
                PagePiece::Bytes { stream, at, bytes } => {
                    for (offset, found) in (0..).zip(bytes) {
                        assert_eq!(*found, byte(*stream, at + offset), "{view:?} {position}");
                    }
                    let length = bytes.len() as u64;
                    for (position, at) in
                        [(position, *at), (position + length - 1, at + length - 1)]
                    {
                        match view {
                            OutputView::Combined => {
                                assert_eq!(self.byte_at(position), (*stream, at))
                            }
                            OutputView::Stdout | OutputView::Stderr => assert_eq!(position, at),
                        }
                    }
                    position += length;
                    checked += length;
                }
            }
        }
        assert_eq!(position, page.next);
        checked
    }
}

fn byte(stream: StdStream, at: u64) -> u8 {
    mix(at * 2 + stream as u64) as u8
}

/// Reads all views from many positions until the writer has ended.
fn read_during_writes(plan: &Plan, dir: &Path) {
    let mut writer = Writer::new(dir, plan.cap);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let output = ProcessOutput::open(dir).unwrap();
            let random = &mut Random(7);
            let mut checked = 0;
            while !done.load(Ordering::Relaxed) {
                let view = random.pick(&VIEWS);
                let total = output.totals().unwrap().in_view(view);
                let oldest = ReadStart::FromEnd(plan.cap / 2);
                let from = ReadStart::At(random.below(total + 1));
                let from = random.pick(&[from, oldest, ReadStart::FromEnd(100), ReadStart::At(0)]);
                let max_bytes = random.pick(&[1, 500, 100_000]);
                let page = output.read(OutputRead { view, start: from, max_bytes }).unwrap();
                checked += plan.check(view, &page);
            }
            checked
        });
        plan.write(&mut writer);
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 100_000, "the reader read too little");
    });
}

#[test]
fn no_wrong_byte_is_read_while_large_pieces_wrap_a_small_ring() {
    let dir = tempfile::tempdir().unwrap();
    read_during_writes(&Plan::new(100_000, 2_500, 60_000), dir.path());
}

#[test]
fn no_byte_is_misplaced_while_the_order_file_wraps() {
    let dir = tempfile::tempdir().unwrap();
    read_during_writes(&Plan::new(200_000, 150_000, 3), dir.path());
}

#[test]
fn an_overtaken_follower_continues_after_the_dropped_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let plan = &Plan::new(100_000, 2_000, 20_000);
    let mut writer = Writer::new(dir.path(), plan.cap);
    let output = ProcessOutput::open(dir.path()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| plan.write(&mut writer));
        let mut follower =
            output.clone().follow(OutputView::Combined, ReadStart::At(0)).max_bytes(3_000);
        let mut next = 0;
        let mut dropped = 0;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            while let Some(page) = follower.next().await.unwrap() {
                assert_eq!(page.from, next);
                plan.check(OutputView::Combined, &page);
                next = page.next;
                dropped += page.dropped_bytes();
            }
        });
        assert_eq!(next, output.totals().unwrap().combined());
        assert!(dropped > 0, "the writer must be faster");
    });
}
