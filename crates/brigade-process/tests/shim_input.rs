//! Bytes for the stdin of a process, each delivered once and unchanged.
#![expect(clippy::unwrap_used, reason = "a test fails where something is not as expected")]

mod shim_support;

use std::thread;
use std::time::{Duration, Instant};

use brigade_process::input_spool::{InputBytes, StoreInputResult, store_input};
use brigade_process::shim::input_spool::SPOOL_BYTES;
use brigade_process::shim::record::ProcessExit;
use shim_support::*;

const WRITER: u64 = 7;

fn start_reader(script: &str) -> Shim {
    let shim = TestArgs { input: "open", cap: 32 << 20, ..TestArgs::default() }.script(script);
    shim.wait_until(|record| record.command.is_some());
    shim
}

fn input(offset: u64, bytes: &[u8], last: bool) -> InputBytes<'_> {
    InputBytes { writer: WRITER, offset, bytes, closes_input: last }
}

/// Stores all bytes in pieces of odd sizes, each of them twice, as after lost replies.
fn store_all(shim: &Shim, bytes: &[u8]) {
    let mut done = 0;
    let mut size = 1;
    while done < bytes.len() {
        size = (size * 7 + 3) % 300_000 + 1;
        let piece = &bytes[done..(done + size).min(bytes.len())];
        let last = done + piece.len() == bytes.len();
        let start = Instant::now();
        loop {
            let result =
                store_input(shim.directory.path(), input(done as u64, piece, last)).unwrap();
            shim.signal(Signal::IO);
            let StoreInputResult::Stored { is_whole, .. } = result else { panic!("{result:?}") };
            if is_whole {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "nobody reads");
            thread::sleep(Duration::from_millis(1));
        }
        // Repeated, as after a lost reply.
        let again = store_input(shim.directory.path(), input(done as u64, piece, last)).unwrap();
        let writer_end = (done + piece.len()) as u64;
        assert_eq!(again, StoreInputResult::Stored { writer_end, is_whole: true });
        done += piece.len();
    }
}

#[test]
fn bytes_arrive_once_and_unchanged_and_then_the_end() {
    let bytes: Vec<u8> = (0..5 * SPOOL_BYTES).map(|at| (at * 31 % 251) as u8).collect();
    let mut shim = start_reader("cat; echo over >&2");
    store_all(&shim, &bytes);
    let record = shim.done();
    assert_eq!(record.exit, Some(ProcessExit::Code(0)));
    assert_eq!((record.input_delivered, record.input_closed), (5 * SPOOL_BYTES, true));
    let (mut stored, tail) = shim.stored(0);
    stored.extend(tail);
    assert!(stored == bytes, "{} bytes of {}", stored.len(), bytes.len());
    assert_eq!(shim.text(1), "over\n");
}

#[test]
fn an_end_without_bytes_closes_the_input() {
    let mut shim = start_reader("cat; exit 4");
    store_input(shim.directory.path(), input(0, b"", true)).unwrap();
    shim.signal(Signal::IO);
    assert_eq!(shim.done().exit, Some(ProcessExit::Code(4)));
}

#[test]
fn a_process_that_closed_its_input_gets_no_more() {
    let mut shim =
        start_reader("exec <&-; echo > $D/closed; while [ ! -e $D/go ]; do sleep 0.01; done");
    shim.wait_for_file("closed");
    store_input(shim.directory.path(), input(0, b"lost", false)).unwrap();
    shim.signal(Signal::IO);
    shim.wait_until(|record| record.input_closed);
    let result = store_input(shim.directory.path(), input(4, b"more", false)).unwrap();
    assert_eq!(result, StoreInputResult::Closed);
    // The bytes before these were refused.
    let result = store_input(shim.directory.path(), input(8, b"last", true)).unwrap();
    assert_eq!(result, StoreInputResult::Closed);
    std::fs::write(shim.path("go"), "").unwrap();
    assert_eq!(shim.done().exit, Some(ProcessExit::Code(0)));
}

#[test]
fn closing_waits_for_bytes_stored_before() {
    let mut shim = start_reader("while [ ! -e $D/go ]; do sleep 0.01; done; wc -c");
    let bytes = vec![b'x'; 500_000];
    store_input(shim.directory.path(), input(0, &bytes, false)).unwrap();
    shim.signal(Signal::IO);
    shim.wait_until(|record| record.input_delivered > 0);
    shim.signal(Signal::USR2);
    std::fs::write(shim.path("go"), "").unwrap();
    shim.done();
    assert_eq!(shim.text(0).trim(), "500000");
}

#[test]
fn bytes_out_of_order_and_of_another_writer_are_refused() {
    let shim = start_reader("cat");
    let dir = shim.directory.path();
    assert_eq!(store_input(dir, input(5, b"later", false)).unwrap(), StoreInputResult::OutOfOrder);
    store_input(dir, input(0, b"first", false)).unwrap();
    let other = InputBytes { writer: 8, ..input(5, b"no", false) };
    assert_eq!(store_input(dir, other).unwrap(), StoreInputResult::OutOfOrder);
    let next = InputBytes { writer: 8, ..input(0, b"a new writer begins", false) };
    assert!(matches!(
        store_input(dir, next).unwrap(),
        StoreInputResult::Stored { writer_end: 19, .. }
    ));
    assert_eq!(store_input(dir, input(5, b"again", false)).unwrap(), StoreInputResult::OutOfOrder);
    assert_eq!(
        store_input(std::path::Path::new("/nonexistent"), input(0, b"", false)).unwrap(),
        StoreInputResult::NotRunning
    );
}

#[test]
fn a_terminal_is_typed_on_with_what_was_brought() {
    let args = TestArgs { settings: "layers=0 terminal=24x80", ..TestArgs::default() };
    let mut shim = args.script("stty -echo; echo > $D/up; cat");
    shim.wait_for_file("up");
    store_input(shim.directory.path(), input(0, b"one\ntwo\n", true)).unwrap();
    shim.signal(Signal::IO);
    assert_eq!(shim.done().exit, Some(ProcessExit::Code(0)));
    assert_eq!(shim.text(0), "one\r\ntwo\r\n");
}
