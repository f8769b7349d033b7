//! A daemon whose socket was removed is found all the same.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::kitchen::{Kitchen, Ran, is_there, kill, poll};

/// Less than a client waits for a daemon that does not come.
const SOON: Duration = Duration::from_secs(15);

fn timed(kitchen: &Kitchen, words: &[&str]) -> Ran {
    let began = Instant::now();
    let ran = Ran::from(kitchen.command(words).output().unwrap());
    assert!(began.elapsed() < SOON, "{words:?} took {:?}: {ran:?}", began.elapsed());
    ran
}

#[test]
fn a_removed_socket_is_bound_again() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--", "sleep", "1000"]);
    let pid = kitchen.daemon_pid();
    let folder = kitchen.socket().parent().unwrap().to_owned();
    for remove in [
        |path: &_| fs::remove_file(path),
        |path: &std::path::Path| fs::remove_dir_all(path.parent().unwrap()),
    ] {
        for words in [&["ps"] as &[&str], &["daemon", "status"], &["doctor"]] {
            remove(&kitchen.socket()).unwrap();
            let ran = timed(&kitchen, words);
            assert_eq!(ran.code, 0, "{words:?}: {ran:?}");
            assert!(!ran.out.contains("not running"), "{words:?}: {ran:?}");
            assert_eq!(kitchen.daemon_pid(), pid, "it is the same daemon");
        }
        let mode = |path: &std::path::Path| {
            use std::os::unix::fs::PermissionsExt;
            path.metadata().unwrap().permissions().mode() & 0o777
        };
        assert_eq!((mode(&folder), mode(&kitchen.socket())), (0o700, 0o600));
    }
    fs::remove_file(kitchen.socket()).unwrap();
    let stopped = timed(&kitchen, &["daemon", "stop"]);
    assert_eq!((stopped.code, &*stopped.out), (0, &*format!("stopped (pid {pid})\n")));
    kitchen.ok(["stop", "1"]);
}

#[test]
fn a_daemon_that_does_not_bind_it_again_is_named_with_its_pid() {
    let kitchen = Kitchen::new();
    kitchen.ok(["daemon", "start"]);
    let pid = kitchen.daemon_pid();
    kill(pid, Signal::STOP);
    fs::remove_file(kitchen.socket()).unwrap();
    for words in [&["ps"] as &[&str], &["daemon", "status"], &["daemon", "stop"]] {
        let ran = timed(&kitchen, words);
        assert_eq!(ran.code, 125, "{words:?}: {ran:?}");
        assert!(ran.err.contains(&format!("the daemon (pid {pid}) runs")), "{words:?}: {ran:?}");
        assert!(ran.err.contains(&format!("`kill {pid}`")), "{words:?}: {ran:?}");
        assert!(!ran.err.contains("no daemon"), "{words:?}: {ran:?}");
    }
    let doctor = timed(&kitchen, &["doctor"]);
    assert_eq!(doctor.code, 120, "{doctor:?}");
    assert!(doctor.out.contains(&format!("the daemon (pid {pid}) runs")), "{doctor:?}");
    assert!(!doctor.out.contains("move it away"), "{doctor:?}");
    kill(pid, Signal::CONT);
    kitchen.ok(["ps"]);
    assert_eq!(kitchen.daemon_pid(), pid);
}

#[test]
fn a_daemon_whose_folder_was_removed_leaves_and_touches_nothing_of_the_next() {
    let kitchen = Kitchen::new();
    kitchen.ok(["daemon", "start"]);
    let first = kitchen.daemon_pid();
    kill(first, Signal::STOP);
    fs::rename(kitchen.state(), kitchen.folder("elsewhere").join("state")).unwrap();
    kitchen.ok(["daemon", "start"]);
    let second = kitchen.daemon_pid();
    assert_ne!(first, second);
    kill(first, Signal::CONT);
    poll("the first one leaves", || (!is_there(first)).then_some(()));
    assert_eq!(kitchen.daemon_pid(), second, "the socket is the second one's");
}
