//! Daemons with a removed socket.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::story_env::{Ran, StoryEnv, is_there, kill, poll};

/// Less than the timeout of a client for a missing daemon.
const SOON: Duration = Duration::from_secs(15);

fn timed(story: &StoryEnv, words: &[&str]) -> Ran {
    let start = Instant::now();
    let ran = Ran::from(story.command(words).output().unwrap());
    assert!(start.elapsed() < SOON, "{words:?} took {:?}: {ran:?}", start.elapsed());
    ran
}

#[test]
fn a_removed_socket_is_bound_again() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--", "sleep", "1000"]);
    let pid = story.daemon_pid();
    let directory = story.socket().parent().unwrap().to_owned();
    for remove in [
        |path: &_| fs::remove_file(path),
        |path: &std::path::Path| fs::remove_dir_all(path.parent().unwrap()),
    ] {
        for words in [&["ps"] as &[&str], &["daemon", "status"], &["doctor"]] {
            remove(&story.socket()).unwrap();
            let ran = timed(&story, words);
            assert_eq!(ran.code, 0, "{words:?}: {ran:?}");
            assert!(!ran.out.contains("not running"), "{words:?}: {ran:?}");
            assert_eq!(story.daemon_pid(), pid, "it is the same daemon");
        }
        let mode = |path: &std::path::Path| {
            use std::os::unix::fs::PermissionsExt;
            path.metadata().unwrap().permissions().mode() & 0o777
        };
        assert_eq!((mode(&directory), mode(&story.socket())), (0o700, 0o600));
    }
    fs::remove_file(story.socket()).unwrap();
    let stopped = timed(&story, &["daemon", "stop"]);
    assert_eq!((stopped.code, &*stopped.out), (0, &*format!("stopped (pid {pid})\n")));
    story.ok(["stop", "1"]);
}

#[test]
fn a_daemon_without_a_socket_is_reported_with_its_pid() {
    let story = StoryEnv::new();
    story.ok(["daemon", "start"]);
    let pid = story.daemon_pid();
    kill(pid, Signal::STOP);
    fs::remove_file(story.socket()).unwrap();
    for words in [&["ps"] as &[&str], &["daemon", "status"], &["daemon", "stop"]] {
        let ran = timed(&story, words);
        assert_eq!(ran.code, 125, "{words:?}: {ran:?}");
        assert!(ran.err.contains(&format!("the daemon (pid {pid}) runs")), "{words:?}: {ran:?}");
        assert!(ran.err.contains(&format!("`kill {pid}`")), "{words:?}: {ran:?}");
        assert!(!ran.err.contains("no daemon"), "{words:?}: {ran:?}");
    }
    let doctor = timed(&story, &["doctor"]);
    assert_eq!(doctor.code, 120, "{doctor:?}");
    assert!(doctor.out.contains(&format!("the daemon (pid {pid}) runs")), "{doctor:?}");
    assert!(!doctor.out.contains("move it away"), "{doctor:?}");
    kill(pid, Signal::CONT);
    story.ok(["ps"]);
    assert_eq!(story.daemon_pid(), pid);
}

#[test]
fn a_daemon_without_its_state_directory_shuts_down_and_keeps_the_next_one_intact() {
    let story = StoryEnv::new();
    story.ok(["daemon", "start"]);
    let first = story.daemon_pid();
    kill(first, Signal::STOP);
    fs::rename(story.state(), story.directory("elsewhere").join("state")).unwrap();
    story.ok(["daemon", "start"]);
    let second = story.daemon_pid();
    assert_ne!(first, second);
    kill(first, Signal::CONT);
    poll("the shutdown of the first daemon", || (!is_there(first)).then_some(()));
    assert_eq!(story.daemon_pid(), second, "the socket belongs to the second daemon");
}
