//! Where no thread is to be had.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

use crate::kitchen::{BRIGADE, Kitchen, Ran, kill};

/// A user that limits are enforced for, unless this is one.
const NOBODY: u32 = 65_534;

/// A command as a user to whom limits apply. None where there is none.
fn limited(kitchen: &Kitchen, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    kitchen.hermetic(&mut command);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

#[test]
fn exec_without_threads_fails_and_starts_nothing() {
    let kitchen = Kitchen::new();
    if rustix::process::geteuid().is_root() {
        let folders = [kitchen.project(), kitchen.home(), kitchen.state()];
        std::fs::create_dir(kitchen.state()).unwrap();
        let root = kitchen.state().parent().unwrap().to_owned();
        for folder in folders.iter().chain([&root]) {
            chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    let Ok(started) = limited(&kitchen, BRIGADE, &["daemon", "start"]).output() else {
        eprintln!("not tested: {BRIGADE} cannot be executed by user {NOBODY}");
        return;
    };
    assert!(started.status.success(), "{started:?}");
    for args in [&["exec", "--", "true"][..], &["exec", "--stdin", "--", "true"]] {
        let words = [&["--nproc=1", BRIGADE], args].concat();
        let ran = Ran::from(limited(&kitchen, "prlimit", &words).output().unwrap());
        assert_eq!(ran.code, 125, "{ran:?}");
        assert!(ran.err.contains("no thread can be started"), "{}", ran.err);
        assert!(ran.err.contains("nothing was started"), "{}", ran.err);
    }
    let listed = limited(&kitchen, BRIGADE, &["ps", "--ended", "--json"]).output().unwrap();
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed.as_array().map(Vec::len), Some(0), "{listed}");
    for pid in kitchen.processes() {
        kill(pid, Signal::KILL);
    }
}
