//! Output without gaps, however slow the reader is.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::story_env::{BRIGADE, Ran, StoryEnv, kill, poll};

/// Returns the number of bytes of `seq 1 COUNT`.
fn seq_bytes(count: u64) -> u64 {
    (1..=count).map(|number| u64::from(number.ilog10()) + 2).sum()
}

/// Waits until the process has waited for its reader.
fn until_held(story: &StoryEnv, task: &str) -> u64 {
    poll("it is held", || story.json(["show", task])["held_ms"].as_u64())
}

/// Reads the rest of the output, and waits for the end.
fn finish(child: Child, mut out: impl Read) -> (Vec<u8>, Ran) {
    let mut bytes = Vec::new();
    out.read_to_end(&mut bytes).unwrap();
    (bytes, child.wait_with_output().unwrap().into())
}

#[test]
fn a_slow_reader_of_a_pipe_gets_every_byte() {
    let story = StoryEnv::new();
    let line =
        format!("{BRIGADE} exec -- seq 1 3000000 | (sleep 1; wc -c); echo ${{PIPESTATUS[0]}}");
    let mut shell = std::process::Command::new("bash");
    story.hermetic(shell.args(["-c", &line]));
    let ran = Ran::from(shell.output().unwrap());
    assert_eq!(ran.out, format!("{}\n0\n", seq_bytes(3_000_000)), "{}", ran.err);
    assert_eq!(ran.err, "");
    assert!(until_held(&story, "process:1") > 0);
    assert!(story.ok(["show", "process:1"]).contains("for readers of its output"));
}

#[test]
fn a_small_cap_loses_nothing_of_both_streams() {
    let story = StoryEnv::new();
    let shell = "for i in 1 2 3 4 5; do seq 1 20000; seq 1 20000 >&2; done";
    let ran = story.run(["exec", "--output-cap", "20000", "--shell", shell]);
    let bytes = usize::try_from(5 * seq_bytes(20_000)).unwrap();
    assert_eq!((ran.code, ran.out.len(), ran.err.len()), (0, bytes, bytes));
}

#[test]
fn a_lossy_reader_does_not_hold_the_process() {
    let story = StoryEnv::new();
    let mut child = story.start(["exec", "--lossy", "--", "seq", "1", "3000000"]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    story.until_state("process:1", "succeeded");
    assert_eq!(story.json(["show", "process:1"])["held_ms"].as_u64(), None);
    let (bytes, ran) = finish(child, out);
    assert!((bytes.len() as u64) < seq_bytes(3_000_000));
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn detached_and_followed_processes_do_not_wait() {
    let story = StoryEnv::new();
    story.ok([
        "exec",
        "-d",
        "--",
        "sh",
        "-c",
        "while [ ! -e go ]; do sleep 0.01; done; seq 1 3000000",
    ]);
    let mut follower = story.start(["logs", "-f", "process:1"]);
    std::fs::write(story.project().join("go"), "").unwrap();
    story.until_state("process:1", "succeeded");
    assert_eq!(story.json(["show", "process:1"])["held_ms"].as_u64(), None);
    kill(follower.id(), Signal::KILL);
    follower.wait().unwrap();
}

/// A short lease; the default is ten seconds.
const SHORT_LEASE: [&str; 7] = ["exec", "--lease", "2s", "--", "seq", "1", "3000000"];

#[test]
fn the_process_continues_without_a_stopped_client_which_reports_the_gap() {
    let story = StoryEnv::new();
    let mut child = story.start(SHORT_LEASE);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    until_held(&story, "process:1");
    assert_eq!(story.state_of("process:1"), "running");
    kill(child.id(), Signal::STOP);
    let stopped = Instant::now();
    story.until_state("process:1", "succeeded");
    assert!(stopped.elapsed() > Duration::from_secs(1), "the lease had not ended");
    kill(child.id(), Signal::CONT);
    let (bytes, ran) = finish(child, out);
    assert!((bytes.len() as u64) < seq_bytes(3_000_000));
    assert_eq!(ran.code, 125, "{}", ran.err);
    assert!(ran.err.contains("bytes of output are not kept"), "{}", ran.err);
    assert!(ran.err.contains("process:1 succeeded, but "), "{}", ran.err);
}

#[test]
fn the_process_continues_without_a_killed_daemon() {
    let story = StoryEnv::new();
    let mut child = story.start(SHORT_LEASE);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    until_held(&story, "process:1");
    // Neither can renew the lease, and no daemon can report the state of the process.
    kill(child.id(), Signal::STOP);
    let pid = story.daemon_pid();
    kill(pid, Signal::KILL);
    let claim = || {
        let sessions = std::fs::read_dir(story.state().join("processes")).unwrap();
        let session = sessions.map(|entry| entry.unwrap().path()).next().unwrap();
        let file = std::fs::File::open(session.join("1.1.1/claim")).unwrap();
        brigade_process::ShimRecord::read_from(&file).unwrap()
    };
    let done = brigade_process::ShimPhase::Done;
    poll("the end of the process", || (claim().phase == done).then_some(()));
    assert_eq!(claim().produced_bytes[0], seq_bytes(3_000_000));
    kill(child.id(), Signal::KILL);
    child.wait().unwrap();
}

#[test]
fn a_client_that_reconnects_loses_nothing() {
    let story = StoryEnv::new();
    let mut child = story.start(["exec", "--", "seq", "1", "3000000"]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    until_held(&story, "process:1");
    story.kill_daemon();
    let (bytes, ran) = finish(child, out);
    assert_eq!((first.len() + bytes.len()) as u64, seq_bytes(3_000_000), "{}", ran.err);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn a_process_does_not_wait_after_its_client_timed_out() {
    let story = StoryEnv::new();
    let mut command = story.command(["exec", "--timeout", "1s", "--lease", "60s", "--"]);
    command.args(["seq", "1", "3000000"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(124));
    let start = Instant::now();
    story.until_state("process:1", "succeeded");
    assert!(start.elapsed() < Duration::from_secs(30), "long before the end of the lease");
    drop(out);
}

/// Returns the holder of the first lease on the output of the only process.
fn lease_holder(story: &StoryEnv) -> u64 {
    let mut dir = story.state().join("processes");
    while !dir.join("leases").exists() {
        let mut entries = std::fs::read_dir(&dir).unwrap();
        dir = entries.find_map(|entry| entry.ok().filter(|e| e.path().is_dir())).unwrap().path();
    }
    let table = std::fs::read(dir.join("leases")).unwrap();
    u64::from_le_bytes(table[16..24].try_into().unwrap())
}

#[test]
fn the_lease_of_an_ended_process_needs_no_release() {
    let story = StoryEnv::new();
    let line = "until grep -q lease \"$BRIGADE_STATE\"/processes/*/*/leases; do sleep 0.02; done 2>/dev/null";
    story.ok(["exec", "--shell", line]);
    assert_ne!(lease_holder(&story), 0, "a release is a request that changes nothing");
}
