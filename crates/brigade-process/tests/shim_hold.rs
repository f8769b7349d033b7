//! Output that waits for a reader who must not miss anything.

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

fn held(script: &str) -> Shim {
    Orders { cap: CAP, timing: "reader=600000", ..Orders::default() }.script(script)
}

/// Reads all there is from a position on, and says where that ends.
fn read_on(dir: &Path, position: u64) -> (Vec<u8>, u64, u64) {
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

/// Reads to the end with a lease, and counts what was cut.
fn read_all(shim: &mut Shim) -> (Vec<u8>, u64) {
    let (mut all, mut position, mut cut) = (Vec::new(), 0, 0);
    loop {
        let is_over = shim.child.try_wait().unwrap().is_some();
        let (bytes, next, lost) = read_on(shim.directory.path(), position);
        all.extend(bytes);
        cut += lost;
        if is_over && next == position {
            return (all, cut);
        }
        position = next;
        lease::renew_lease(shim.directory.path(), READER, position, LONG).unwrap();
    }
}

#[test]
fn nothing_is_dropped_that_a_reader_with_a_lease_has_not_read() {
    let mut shim = held("seq 1 400000");
    let total = shim.wait_until(|record| record.held_ms > 0).produced_bytes[0];
    assert!(total <= CAP, "{total} bytes were read for nobody");
    let (all, cut) = read_all(&mut shim);
    let expect: String = (1..=400_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(cut, 0);
    assert!(all == expect.as_bytes(), "{} bytes of {}", all.len(), expect.len());
    let record = shim.done();
    assert_eq!(record.exit, Some(ProcessExit::Code(0)));
    assert!(record.held_ms > 0);
}

#[test]
fn the_last_bytes_wait_too_when_the_command_has_ended() {
    let mut shim = held(&format!("head -c {} /dev/zero; exit 3", CAP + 10_000));
    let record = shim.wait_until(|record| record.exit.is_some());
    assert_eq!(record.produced_bytes[0], CAP);
    assert!(shim.child.try_wait().unwrap().is_none(), "it waits for its reader");
    let (all, cut) = read_all(&mut shim);
    assert_eq!((all.len() as u64, cut), (CAP + 10_000, 0));
    assert_eq!(shim.done().exit, Some(ProcessExit::Code(3)));
}

#[test]
fn the_order_of_both_streams_is_kept_for_a_reader() {
    // The cap is far away: only changes between the streams are many.
    let orders = Orders { cap: 1 << 30, timing: "reader=600000", ..Orders::default() };
    let mut shim = orders.script("until [ -e $D/go ]; do echo o; echo e >&2; done");
    let record = shim.wait_until(|record| record.held_ms > 0);
    assert_eq!(record.switch_count, 2 * SWITCHES_HALF, "as many as are kept");
    std::fs::write(shim.path("go"), "").unwrap();
    let (all, cut) = read_all(&mut shim);
    let record = shim.done();
    assert_eq!((cut, all.len() as u64), (0, record.produced_bytes[0] + record.produced_bytes[1]));
    assert!(record.switch_count > 2 * SWITCHES_HALF);
}

#[test]
fn a_lease_that_is_not_renewed_lets_the_command_go_on() {
    let mut shim = held("seq 1 400000");
    shim.wait_until(|record| record.held_ms > 0);
    let begin = Instant::now();
    lease::renew_lease(shim.directory.path(), READER, 0, Duration::from_millis(400)).unwrap();
    let record = shim.done();
    assert!(begin.elapsed() >= Duration::from_millis(400));
    assert_eq!((record.exit, record.produced_bytes[0]), (Some(ProcessExit::Code(0)), 2_688_895));
    let (_, _, cut) = read_on(shim.directory.path(), 0);
    assert_eq!(cut, record.produced_bytes[0] - CAP);
}

#[test]
fn a_released_lease_and_a_reader_who_never_came_hold_nothing() {
    let mut shim = held("seq 1 400000");
    shim.wait_until(|record| record.held_ms > 0);
    lease::renew_lease(shim.directory.path(), READER, 0, LONG).unwrap();
    lease::release_lease(shim.directory.path(), READER).unwrap();
    shim.done();
    let mut shim =
        Orders { cap: CAP, timing: "reader=300", ..Orders::default() }.script("seq 1 400000");
    let begin = Instant::now();
    shim.done();
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

#[test]
fn the_slowest_of_two_readers_counts() {
    let mut shim = held("seq 1 400000");
    shim.wait_until(|record| record.held_ms > 0);
    let dir = shim.directory.path();
    lease::renew_lease(dir, READER + 1, 1_000, LONG).unwrap();
    lease::renew_lease(dir, READER, CAP, LONG).unwrap();
    let before = shim.record().unwrap().produced_bytes[0];
    assert_eq!(before, CAP, "nothing more may be read");
    lease::release_lease(dir, READER + 1).unwrap();
    let (_, cut) = read_all(&mut shim);
    assert_eq!(cut, 0);
    shim.done();
}

#[test]
fn a_stop_does_not_wait_for_a_reader_for_ever() {
    let mut shim = held("yes");
    shim.wait_until(|record| record.held_ms > 0);
    lease::renew_lease(shim.directory.path(), READER, 0, LONG).unwrap();
    shim.signal(Signal::TERM);
    assert_eq!(shim.done().exit, Some(ProcessExit::Signal(15)));
}

#[test]
fn a_command_that_keeps_nothing_waits_for_nobody() {
    let mut shim =
        Orders { cap: 0, timing: "reader=600000", ..Orders::default() }.script("seq 1 400000");
    lease::renew_lease(shim.directory.path(), READER, 0, LONG).unwrap();
    assert_eq!(shim.done().exit, Some(ProcessExit::Code(0)));
}
