//! Reading while somebody writes as fast as it can.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use brigade_process::output::{
    OutputRead, OutputView, PagePiece, ProcessOutput, ReadStart, StdStream, ViewPage,
};

use crate::writer::{Random, VIEWS, Writer, mix};

/// What is written, so that each byte and its place can be told from its position.
struct Plan {
    cap: u64,
    /// Stream, position in it and in both, length.
    chunks: Vec<(StdStream, u64, u64, u64)>,
}

impl Plan {
    fn new(cap: u64, count: usize, longest: u64) -> Self {
        let random = &mut Random(cap);
        let (mut produced, mut chunks) = ([0; 2], Vec::new());
        for _ in 0..count {
            let (stream, length) = (random.stream(), 1 + random.below(longest));
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

    /// Which byte arrived at this position of the combined view.
    fn arrived(&self, position: u64) -> (StdStream, u64) {
        let index = self.chunks.partition_point(|(_, _, begin, _)| *begin <= position) - 1;
        let (stream, at, begin, _) = self.chunks[index];
        (stream, at + position - begin)
    }

    fn check(&self, which: OutputView, page: &ViewPage) -> u64 {
        let (mut position, mut checked) = (page.from, 0);
        for piece in &page.pieces {
            match piece {
                PagePiece::Dropped { bytes } => position += bytes,
                PagePiece::Bytes { stream, at, bytes } => {
                    for (offset, found) in (0..).zip(bytes) {
                        assert_eq!(*found, byte(*stream, at + offset), "{which:?} {position}");
                    }
                    let length = bytes.len() as u64;
                    for (position, at) in
                        [(position, *at), (position + length - 1, at + length - 1)]
                    {
                        match which {
                            OutputView::Combined => {
                                assert_eq!(self.arrived(position), (*stream, at))
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

/// Readers of all views from all kinds of places, until the writer has ended.
fn hammer(plan: &Plan, dir: &Path) {
    let mut writer = Writer::new(dir, plan.cap);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let output = ProcessOutput::open(dir).unwrap();
            let (random, mut checked) = (&mut Random(7), 0);
            while !done.load(Ordering::Relaxed) {
                let which = random.pick(&VIEWS);
                let total = output.totals().unwrap().in_view(which);
                let oldest = ReadStart::FromEnd(plan.cap / 2);
                let from = ReadStart::At(random.below(total + 1));
                let from = random.pick(&[from, oldest, ReadStart::FromEnd(100), ReadStart::At(0)]);
                let max_bytes = random.pick(&[1, 500, 100_000]);
                let page = output.read(OutputRead { view: which, start: from, max_bytes }).unwrap();
                checked += plan.check(which, &page);
            }
            checked
        });
        plan.write(&mut writer);
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 100_000, "the reader saw too little to prove anything");
    });
}

#[test]
fn no_wrong_byte_is_read_while_large_pieces_go_round_a_small_ring() {
    let dir = tempfile::tempdir().unwrap();
    hammer(&Plan::new(100_000, 2_500, 60_000), dir.path());
}

#[test]
fn no_byte_is_put_in_a_wrong_place_while_the_order_goes_round_its_ring() {
    let dir = tempfile::tempdir().unwrap();
    hammer(&Plan::new(200_000, 150_000, 3), dir.path());
}

#[test]
fn a_follower_that_is_overtaken_goes_on_behind_the_cut() {
    let dir = tempfile::tempdir().unwrap();
    let plan = &Plan::new(100_000, 2_000, 20_000);
    let mut writer = Writer::new(dir.path(), plan.cap);
    let output = ProcessOutput::open(dir.path()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| plan.write(&mut writer));
        let mut follow =
            output.clone().follow(OutputView::Combined, ReadStart::At(0)).max_bytes(3_000);
        let (mut next, mut cut) = (0, 0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            while let Some(page) = follow.next().await.unwrap() {
                assert_eq!(page.from, next);
                plan.check(OutputView::Combined, &page);
                (next, cut) = (page.next, cut + page.dropped_bytes());
            }
        });
        assert_eq!(next, output.totals().unwrap().combined());
        assert!(cut > 0, "the writer was to be faster");
    });
}
