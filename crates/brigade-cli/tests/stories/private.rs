//! The files of the state directory belong to its user alone.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::story_env::{BRIGADE, StoryEnv};

const FILES: [&str; 8] = [
    "brigade.db",
    "brigade.db-wal",
    "brigade.db-shm",
    "brigade.db.lock",
    "daemon.log",
    "daemon.lock",
    "operator.key",
    "processes.lock",
];

fn create_state_dir(story: &StoryEnv, mode: u32) {
    fs::create_dir_all(story.state()).unwrap();
    fs::set_permissions(story.state(), Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn assert_private(story: &StoryEnv) {
    for name in FILES {
        let mode = fs::metadata(story.state().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// Starts a daemon from a shell with this umask.
fn start(story: &StoryEnv, umask: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("umask {umask}; exec {BRIGADE} exec -- sh -c umask")]);
    story.hermetic(&mut shell);
    let ran = shell.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), format!("{umask}\n"), "{ran:?}");
}

#[test]
fn files_are_private_in_a_state_directory_that_others_can_read() {
    let story = StoryEnv::new();
    create_state_dir(&story, 0o755);
    start(&story, "0022");
    assert_private(&story);
    story.ok(["daemon", "stop"]);
    for entry in fs::read_dir(story.state()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && !path.ends_with("brigade.sock") {
            fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        }
    }
    start(&story, "0002");
    assert_private(&story);
}

#[test]
fn a_state_directory_that_others_can_write_is_refused_with_a_fix() {
    for mode in [0o770, 0o707, 0o1777] {
        let story = StoryEnv::new();
        create_state_dir(&story, mode);
        let ran = story.run(["exec", "--", "true"]);
        assert_eq!(ran.code, 125, "{ran:?}");
        let fix = format!("chmod 700 {}", story.state().display());
        assert!(ran.err.contains(&fix), "{ran:?}");
        assert_eq!(fs::read_dir(story.state()).unwrap().count(), 0, "it stays empty");
    }
}

#[test]
fn a_symlinked_log_is_not_written() {
    let story = StoryEnv::new();
    create_state_dir(&story, 0o700);
    let elsewhere = story.home().join("precious");
    fs::write(&elsewhere, "mine").unwrap();
    std::os::unix::fs::symlink(&elsewhere, story.state().join("daemon.log")).unwrap();
    assert_eq!(story.run(["exec", "--", "true"]).code, 125);
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "mine");
}
