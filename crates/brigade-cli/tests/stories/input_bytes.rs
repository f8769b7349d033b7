//! Input that a command reads byte by byte as it was.

use std::io::Write;
use std::process::Child;
use std::time::Instant;

use crate::kitchen::{Kitchen, Ran, poll};

/// Writes to a client's input and ends it, while its output is read.
fn fed(mut client: Child, bytes: Vec<u8>) -> std::process::Output {
    let mut input = client.stdin.take().unwrap();
    let writing = std::thread::spawn(move || input.write_all(&bytes));
    let output = client.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    output
}

fn any_bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 31 % 251) as u8 ^ (at >> 11) as u8).collect()
}

#[test]
fn nothing_is_added_to_the_input_or_taken_from_it() {
    let kitchen = Kitchen::new();
    for bytes in [&b"x"[..], b"", b"\n", b"a\r\nb", b"\xff\xfe\x00\n\x80"] {
        let output = fed(kitchen.start_fed(["exec", "--stdin", "--", "cat"]), bytes.to_vec());
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*output.stdout), (Some(0), bytes), "{err}");
    }
}

#[test]
fn a_large_input_arrives_whole_and_then_ends() {
    let kitchen = Kitchen::new();
    let bytes = any_bytes(20 << 20);
    let begin = Instant::now();
    let output = fed(kitchen.start_fed(["exec", "--stdin", "--", "cat"]), bytes.clone());
    eprintln!("{:.1} MB/s both ways", 20.0 / begin.elapsed().as_secs_f64());
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(output.stdout == bytes, "{} bytes of {}", output.stdout.len(), bytes.len());
}

#[test]
fn bytes_arrive_once_while_daemons_die() {
    let kitchen = Kitchen::new();
    let bytes = any_bytes(3 << 20);
    let mut client = kitchen.start_fed(["exec", "--stdin", "--", "cat"]);
    let mut input = client.stdin.take().unwrap();
    let reading = std::thread::spawn(move || client.wait_with_output().unwrap());
    for part in bytes.chunks(bytes.len() / 6 + 1) {
        input.write_all(part).unwrap();
        poll("a daemon", || (kitchen.run(["daemon", "status"]).code == 0).then_some(()));
        kitchen.kill_daemon();
    }
    drop(input);
    let output = reading.join().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(output.stdout == bytes, "{} bytes of {}", output.stdout.len(), bytes.len());
}

#[test]
fn lines_that_are_sent_come_between_bytes() {
    let kitchen = Kitchen::new();
    let mut client = kitchen.start_fed(["exec", "--stdin", "--", "cat"]);
    let printed = |text: &str| {
        poll(text, || kitchen.run(["logs", "1"]).out.ends_with(text).then_some(()));
    };
    client.stdin.as_mut().unwrap().write_all(b"half").unwrap();
    printed("half");
    kitchen.ok(["send", "1", " a line"]);
    printed("half a line\n");
    client.stdin.as_mut().unwrap().write_all(b"end").unwrap();
    drop(client.stdin.take());
    let ran = Ran::from(client.wait_with_output().unwrap());
    assert_eq!((ran.code, &*ran.out), (0, "half a line\nend"), "{}", ran.err);
}
