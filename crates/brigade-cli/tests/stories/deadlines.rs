//! Deadlines without a daemon.

use rustix::process::Signal;

use crate::story_env::{StoryEnv, is_there, kill, poll};

#[test]
fn a_shim_enforces_the_deadline_without_a_daemon() {
    let story = StoryEnv::new();
    let script = "trap 'exit 0' TERM; echo $$ > pid; while :; do sleep 0.1; done";
    story.ok(["exec", "-d", "--deadline", "2s", "--shell", script]);
    let pid: u32 = story.file("pid").trim().parse().unwrap();
    let daemon = story.daemon_pid();
    kill(daemon, Signal::KILL);
    poll("the end of the process", || (!is_there(pid)).then_some(()));
    assert!(!is_there(daemon), "no other daemon was started");
    let ran = story.run(["wait", "process:1"]);
    assert_eq!(ran.code, 124, "{ran:?}");
    let shown = story.json(["show", "process:1"]);
    assert_eq!(shown["detail"], "failed (timeout after 2000 ms)");
    assert_eq!(shown["result"]["exit_code"], 0, "the exit code after SIGTERM");
}
