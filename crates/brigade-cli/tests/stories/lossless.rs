//! Output that is shown whole, however slow its reader is.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::kitchen::{BRIGADE, Kitchen, Ran, kill, poll};

/// Bytes of `seq 1 COUNT`.
fn seq_bytes(count: u64) -> u64 {
    (1..=count).map(|number| u64::from(number.ilog10()) + 2).sum()
}

/// Waits until the command has waited for its reader.
fn until_held(kitchen: &Kitchen, task: &str) -> u64 {
    poll("it is held", || kitchen.json(["show", task])["held_ms"].as_u64())
}

/// Reads the rest, and how it ended.
fn finish(child: Child, mut out: impl Read) -> (Vec<u8>, Ran) {
    let mut bytes = Vec::new();
    out.read_to_end(&mut bytes).unwrap();
    (bytes, child.wait_with_output().unwrap().into())
}

#[test]
fn a_slow_reader_of_a_pipe_gets_every_byte() {
    let kitchen = Kitchen::new();
    let line =
        format!("{BRIGADE} exec -- seq 1 3000000 | (sleep 1; wc -c); echo ${{PIPESTATUS[0]}}");
    let mut shell = std::process::Command::new("bash");
    kitchen.hermetic(shell.args(["-c", &line]));
    let ran = Ran::from(shell.output().unwrap());
    assert_eq!(ran.out, format!("{}\n0\n", seq_bytes(3_000_000)), "{}", ran.err);
    assert_eq!(ran.err, "");
    assert!(until_held(&kitchen, "process:1") > 0);
    assert!(kitchen.ok(["show", "process:1"]).contains("for readers of its output"));
}

#[test]
fn a_small_cap_is_enough_to_miss_nothing_of_both_streams() {
    let kitchen = Kitchen::new();
    let shell = "for i in 1 2 3 4 5; do seq 1 20000; seq 1 20000 >&2; done";
    let ran = kitchen.run(["exec", "--output-cap", "20000", "--shell", shell]);
    let bytes = usize::try_from(5 * seq_bytes(20_000)).unwrap();
    assert_eq!((ran.code, ran.out.len(), ran.err.len()), (0, bytes, bytes));
}

#[test]
fn a_reader_that_does_not_mind_holds_nothing_up() {
    let kitchen = Kitchen::new();
    let mut child = kitchen.start(["exec", "--lossy", "--", "seq", "1", "3000000"]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    kitchen.until_state("process:1", "succeeded");
    assert_eq!(kitchen.json(["show", "process:1"])["held_ms"].as_u64(), None);
    let (bytes, ran) = finish(child, out);
    assert!((bytes.len() as u64) < seq_bytes(3_000_000));
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn what_is_detached_or_followed_waits_for_nobody() {
    let kitchen = Kitchen::new();
    kitchen.ok([
        "exec",
        "-d",
        "--",
        "sh",
        "-c",
        "while [ ! -e go ]; do sleep 0.01; done; seq 1 3000000",
    ]);
    let mut follower = kitchen.start(["logs", "-f", "process:1"]);
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    kitchen.until_state("process:1", "succeeded");
    assert_eq!(kitchen.json(["show", "process:1"])["held_ms"].as_u64(), None);
    kill(follower.id(), Signal::KILL);
    follower.wait().unwrap();
}

/// With a short lease, which is ten seconds long for people.
const SHORT: [&str; 7] = ["exec", "--lease", "2s", "--", "seq", "1", "3000000"];

#[test]
fn a_client_that_was_stopped_lets_the_command_go_on_and_says_what_it_missed() {
    let kitchen = Kitchen::new();
    let mut child = kitchen.start(SHORT);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    until_held(&kitchen, "process:1");
    assert_eq!(kitchen.state_of("process:1"), "running");
    kill(child.id(), Signal::STOP);
    let stopped = Instant::now();
    kitchen.until_state("process:1", "succeeded");
    assert!(stopped.elapsed() > Duration::from_secs(1), "the lease was not over");
    kill(child.id(), Signal::CONT);
    let (bytes, ran) = finish(child, out);
    assert!((bytes.len() as u64) < seq_bytes(3_000_000));
    assert_eq!(ran.code, 125, "{}", ran.err);
    assert!(ran.err.contains("bytes of output are not kept"), "{}", ran.err);
    assert!(ran.err.contains("process:1 succeeded, but "), "{}", ran.err);
}

#[test]
fn a_daemon_that_is_killed_lets_the_command_go_on() {
    let kitchen = Kitchen::new();
    let mut child = kitchen.start(SHORT);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    until_held(&kitchen, "process:1");
    // Neither of them can renew the lease, and nobody else can say how the command is.
    kill(child.id(), Signal::STOP);
    let pid = kitchen.daemon_pid();
    kill(pid, Signal::KILL);
    let claim = || {
        let sessions = std::fs::read_dir(kitchen.state().join("processes")).unwrap();
        let session = sessions.map(|entry| entry.unwrap().path()).next().unwrap();
        let file = std::fs::File::open(session.join("1.1.1/claim")).unwrap();
        brigade_process::ShimRecord::read_from(&file).unwrap()
    };
    let done = brigade_process::ShimPhase::Done;
    poll("it went on", || (claim().phase == done).then_some(()));
    assert_eq!(claim().produced_bytes[0], seq_bytes(3_000_000));
    kill(child.id(), Signal::KILL);
    child.wait().unwrap();
}

#[test]
fn a_client_that_finds_the_next_daemon_misses_nothing() {
    let kitchen = Kitchen::new();
    let mut child = kitchen.start(["exec", "--", "seq", "1", "3000000"]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    until_held(&kitchen, "process:1");
    kitchen.kill_daemon();
    let (bytes, ran) = finish(child, out);
    assert_eq!((first.len() + bytes.len()) as u64, seq_bytes(3_000_000), "{}", ran.err);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn a_command_that_is_left_behind_waits_no_longer() {
    let kitchen = Kitchen::new();
    let mut command = kitchen.command(["exec", "--timeout", "1s", "--lease", "60s", "--"]);
    command.args(["seq", "1", "3000000"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let left = child.wait().unwrap();
    assert_eq!(left.code(), Some(124));
    let begin = Instant::now();
    kitchen.until_state("process:1", "succeeded");
    assert!(begin.elapsed() < Duration::from_secs(30), "long before the lease would be over");
    drop(out);
}
