//! Output that waits for a reader with a lease.

#![expect(clippy::unwrap_used, reason = "a test fails where something is not as expected")]

mod shim_support;

use std::path::Path;
use std::time::{Duration, Instant};

use brigade_process::ProcessOutput;
use brigade_process::lease;
use brigade_process::output::{OutputRead, OutputView, PagePiece, ReadStart};
use brigade_process::shim::layout::SWITCHES_HALF;
use brigade_process::shim::record::ProcessExit;
use shim_support::*;

const READER: u64 = 7;
/// Longer than a test takes.
const LONG: Duration = Duration::from_secs(600);
const CAP: u64 = 256 * 1024;

fn script_with_held_output(script: &str) -> Shim {
    TestArgs { cap: CAP, timing: "reader=600000", ..TestArgs::default() }.script(script)
}

/// Reads all output from a position on. Returns it with the next position and the dropped bytes.
fn read_from(dir: &Path, position: u64) -> (Vec<u8>, u64, u64) {
    let read = OutputRead {
        view: OutputView::Combined,
        start: ReadStart::At(position),
        max_bytes: 1 << 20,
    };
    let page = ProcessOutput::open(dir).unwrap().read(read).unwrap();
    let mut bytes = Vec::new();
    for piece in &page.pieces {
        if let PagePiece::Bytes { bytes: more, .. } = piece {
            bytes.extend_from_slice(more);
        }
    }
    (bytes, page.next, page.dropped_bytes())
}

/// Reads to the end with a lease. Returns the output and the number of dropped bytes.
fn read_all(shim: &mut Shim) -> (Vec<u8>, u64) {
    let mut all = Vec::new();
    let mut position = 0;
    let mut dropped = 0;
    loop {
        let has_exited = shim.child.try_wait().unwrap().is_some();
        let (bytes, next, newly_dropped) = read_from(shim.directory.path(), position);
        all.extend(bytes);
        dropped += newly_dropped;
        if has_exited && next == position {
            return (all, dropped);
        }
        position = next;
        lease::renew_lease(shim.directory.path(), READER, position, LONG).unwrap();
    }
}

#[test]
fn unread_output_of_a_reader_with_a_lease_is_not_dropped() {
    let mut shim = script_with_held_output("seq 1 400000");
    let total = shim.wait_until(|record| record.held_ms > 0).produced_bytes[0];
    assert!(total <= CAP, "{total} bytes were read without a reader");
    let (all, dropped) = read_all(&mut shim);
    let expect: String = (1..=400_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(dropped, 0);
    assert!(all == expect.as_bytes(), "{} bytes of {}", all.len(), expect.len());
    let record = shim.done();
    assert_eq!(record.exit, Some(ProcessExit::Code(0)));
    assert!(record.held_ms > 0);
}

#[test]
fn the_last_bytes_wait_for_the_reader_after_the_exit() {
    let mut shim = script_with_held_output(&format!("head -c {} /dev/zero; exit 3", CAP + 10_000));
    let record = shim.wait_until(|record| record.exit.is_some());
    assert_eq!(record.produced_bytes[0], CAP);
    assert!(shim.child.try_wait().unwrap().is_none(), "it waits for its reader");
    let (all, dropped) = read_all(&mut shim);
    assert_eq!((all.len() as u64, dropped), (CAP + 10_000, 0));
    assert_eq!(shim.done().exit, Some(ProcessExit::Code(3)));
}

#[test]
fn the_order_of_both_streams_is_held_for_a_reader() {
    // The cap is far away. Only the number of switches is large.
    let args = TestArgs { cap: 1 << 30, timing: "reader=600000", ..TestArgs::default() };
    let mut shim = args.script("until [ -e $D/go ]; do echo o; echo e >&2; done");
    let record = shim.wait_until(|record| record.held_ms > 0);
    assert_eq!(record.switch_count, 2 * SWITCHES_HALF, "as many as are stored");
    std::fs::write(shim.path("go"), "").unwrap();
    let (all, dropped) = read_all(&mut shim);
    let record = shim.done();
    assert_eq!(
        (dropped, all.len() as u64),
        (0, record.produced_bytes[0] + record.produced_bytes[1])
    );
    assert!(record.switch_count > 2 * SWITCHES_HALF);
}

#[test]
fn an_expired_lease_lets_the_process_continue() {
    let mut shim = script_with_held_output("seq 1 400000");
    shim.wait_until(|record| record.held_ms > 0);
    let start = Instant::now();
    lease::renew_lease(shim.directory.path(), READER, 0, Duration::from_millis(400)).unwrap();
    let record = shim.done();
    assert!(start.elapsed() >= Duration::from_millis(400));
    assert_eq!((record.exit, record.produced_bytes[0]), (Some(ProcessExit::Code(0)), 2_688_895));
    let (_, _, dropped) = read_from(shim.directory.path(), 0);
    assert_eq!(dropped, record.produced_bytes[0] - CAP);
}

#[test]
fn a_released_lease_and_an_absent_reader_hold_nothing() {
    let mut shim = script_with_held_output("seq 1 400000");
    shim.wait_until(|record| record.held_ms > 0);
    lease::renew_lease(shim.directory.path(), READER, 0, LONG).unwrap();
    lease::release_lease(shim.directory.path(), READER).unwrap();
    shim.done();
    let mut shim = script_with_held_output("seq 1 400000");
    shim.wait_until(|record| record.held_ms > 0);
    lease::release_lease(shim.directory.path(), READER).unwrap();
    shim.done();
    let mut shim =
        TestArgs { cap: CAP, timing: "reader=300", ..TestArgs::default() }.script("seq 1 400000");
    let start = Instant::now();
    shim.done();
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[test]
fn the_slowest_of_two_readers_counts() {
    let mut shim = script_with_held_output("seq 1 400000");
    shim.wait_until(|record| record.held_ms > 0);
    let dir = shim.directory.path();
    lease::renew_lease(dir, READER + 1, 1_000, LONG).unwrap();
    lease::renew_lease(dir, READER, CAP, LONG).unwrap();
    let before = shim.record().unwrap().produced_bytes[0];
    assert_eq!(before, CAP, "nothing more may be read");
    lease::release_lease(dir, READER + 1).unwrap();
    let (_, dropped) = read_all(&mut shim);
    assert_eq!(dropped, 0);
    shim.done();
}

#[test]
fn a_stop_waits_for_a_reader_for_a_limited_time() {
    let mut shim = script_with_held_output("yes");
    shim.wait_until(|record| record.held_ms > 0);
    lease::renew_lease(shim.directory.path(), READER, 0, LONG).unwrap();
    shim.signal(Signal::TERM);
    assert_eq!(shim.done().exit, Some(ProcessExit::Signal(15)));
}

#[test]
fn a_process_without_stored_output_waits_for_nobody() {
    let mut shim =
        TestArgs { cap: 0, timing: "reader=600000", ..TestArgs::default() }.script("seq 1 400000");
    lease::renew_lease(shim.directory.path(), READER, 0, LONG).unwrap();
    assert_eq!(shim.done().exit, Some(ProcessExit::Code(0)));
}
