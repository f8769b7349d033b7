//! `brigade exec` without threads.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

use crate::story_env::{BRIGADE, Ran, StoryEnv, kill};

/// A user to whom limits apply, if the test runs as root.
const NOBODY: u32 = 65_534;

/// Returns a command of a user to whom limits apply.
fn limited(story: &StoryEnv, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    story.hermetic(&mut command);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

#[test]
fn exec_without_threads_reads_no_input_and_prints_the_output() {
    let story = StoryEnv::new();
    if rustix::process::geteuid().is_root() {
        let directories = [story.project(), story.home(), story.state()];
        std::fs::create_dir(story.state()).unwrap();
        let root = story.state().parent().unwrap().to_owned();
        for directory in directories.iter().chain([&root]) {
            chown(directory, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    let Ok(started) = limited(&story, BRIGADE, &["daemon", "start"]).output() else {
        eprintln!("not tested: {BRIGADE} cannot be executed by user {NOBODY}");
        return;
    };
    assert!(started.status.success(), "{started:?}");
    let exec = |args: &[&str]| {
        let words = [&["--nproc=1", BRIGADE, "exec"], args].concat();
        Ran::from(limited(&story, "prlimit", &words).output().unwrap())
    };
    let ran = exec(&["--stdin", "--", "true"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("no thread can be started"), "{}", ran.err);
    assert!(ran.err.contains("nothing was started"), "{}", ran.err);
    let listed = limited(&story, BRIGADE, &["ps", "--ended", "--json"]).output().unwrap();
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed.as_array().map(Vec::len), Some(0), "{listed}");
    let ran = exec(&["--shell", "echo out; echo err >&2; exit 3"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (3, "out\n", "err\n"));
    for pid in story.processes() {
        kill(pid, Signal::KILL);
    }
}
