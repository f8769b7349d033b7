//! What is in the state folder is for its user alone.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::kitchen::{BRIGADE, Kitchen};

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

fn folder_with(kitchen: &Kitchen, mode: u32) {
    fs::create_dir_all(kitchen.state()).unwrap();
    fs::set_permissions(kitchen.state(), Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn all_are_private(kitchen: &Kitchen) {
    for name in FILES {
        let mode = fs::metadata(kitchen.state().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// As from a shell with this umask.
fn start(kitchen: &Kitchen, umask: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("umask {umask}; exec {BRIGADE} exec -- sh -c umask")]);
    kitchen.hermetic(&mut shell);
    let ran = shell.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), format!("{umask}\n"), "{ran:?}");
}

#[test]
fn files_are_private_in_a_folder_that_others_can_look_into() {
    let kitchen = Kitchen::new();
    folder_with(&kitchen, 0o755);
    start(&kitchen, "0022");
    all_are_private(&kitchen);
    kitchen.ok(["daemon", "stop"]);
    for entry in fs::read_dir(kitchen.state()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && !path.ends_with("brigade.sock") {
            fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        }
    }
    start(&kitchen, "0002");
    all_are_private(&kitchen);
}

#[test]
fn a_folder_that_others_can_write_to_is_refused_with_the_remedy() {
    for mode in [0o770, 0o707, 0o1777] {
        let kitchen = Kitchen::new();
        folder_with(&kitchen, mode);
        let ran = kitchen.run(["exec", "--", "true"]);
        assert_eq!(ran.code, 125, "{ran:?}");
        let remedy = format!("chmod 700 {}", kitchen.state().display());
        assert!(ran.err.contains(&remedy), "{ran:?}");
        assert_eq!(fs::read_dir(kitchen.state()).unwrap().count(), 0, "nothing is made in it");
    }
}

#[test]
fn a_log_that_is_a_link_is_not_written_to() {
    let kitchen = Kitchen::new();
    folder_with(&kitchen, 0o700);
    let elsewhere = kitchen.home().join("precious");
    fs::write(&elsewhere, "mine").unwrap();
    std::os::unix::fs::symlink(&elsewhere, kitchen.state().join("daemon.log")).unwrap();
    assert_eq!(kitchen.run(["exec", "--", "true"]).code, 125);
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "mine");
}
