//! `exec --stdin` byte by byte.

use std::io::Write;
use std::process::Child;
use std::time::Instant;

use crate::story_env::{Ran, StoryEnv, poll};

/// Writes to the stdin of a client and closes it, while the output is read.
fn feed(mut client: Child, bytes: Vec<u8>) -> std::process::Output {
    let mut input = client.stdin.take().unwrap();
    let writing = std::thread::spawn(move || input.write_all(&bytes));
    let output = client.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    output
}

fn varied_bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 31 % 251) as u8 ^ (at >> 11) as u8).collect()
}

#[test]
fn the_input_arrives_unchanged() {
    let story = StoryEnv::new();
    for bytes in [&b"x"[..], b"", b"\n", b"a\r\nb", b"\xff\xfe\x00\n\x80"] {
        let output = feed(story.start_fed(["exec", "--stdin", "--", "cat"]), bytes.to_vec());
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*output.stdout), (Some(0), bytes), "{err}");
    }
}

#[test]
fn a_large_input_arrives_whole() {
    let story = StoryEnv::new();
    let bytes = varied_bytes(20 << 20);
    let start = Instant::now();
    let output = feed(story.start_fed(["exec", "--stdin", "--", "cat"]), bytes.clone());
    eprintln!("{:.1} MB/s both ways", 20.0 / start.elapsed().as_secs_f64());
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(output.stdout == bytes, "{} bytes of {}", output.stdout.len(), bytes.len());
}

#[test]
fn bytes_arrive_once_while_daemons_are_killed() {
    let story = StoryEnv::new();
    let bytes = varied_bytes(3 << 20);
    let mut client = story.start_fed(["exec", "--stdin", "--", "cat"]);
    let mut input = client.stdin.take().unwrap();
    let reading = std::thread::spawn(move || client.wait_with_output().unwrap());
    for part in bytes.chunks(bytes.len() / 6 + 1) {
        input.write_all(part).unwrap();
        poll("a daemon", || (story.run(["daemon", "status"]).code == 0).then_some(()));
        story.kill_daemon();
    }
    drop(input);
    let output = reading.join().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(output.stdout == bytes, "{} bytes of {}", output.stdout.len(), bytes.len());
}

#[test]
fn sent_lines_arrive_between_bytes() {
    let story = StoryEnv::new();
    let mut client = story.start_fed(["exec", "--stdin", "--", "cat"]);
    let printed = |text: &str| {
        poll(text, || story.run(["logs", "1"]).out.ends_with(text).then_some(()));
    };
    client.stdin.as_mut().unwrap().write_all(b"half").unwrap();
    printed("half");
    story.ok(["send", "1", " a line"]);
    printed("half a line\n");
    client.stdin.as_mut().unwrap().write_all(b"end").unwrap();
    drop(client.stdin.take());
    let ran = Ran::from(client.wait_with_output().unwrap());
    assert_eq!((ran.code, &*ran.out), (0, "half a line\nend"), "{}", ran.err);
}
