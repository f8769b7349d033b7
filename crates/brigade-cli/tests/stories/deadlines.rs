//! Deadlines that hold although no daemon runs.

use rustix::process::Signal;

use crate::kitchen::{Kitchen, is_there, kill, poll};

#[test]
fn a_deadline_ends_a_command_without_a_daemon_and_the_next_one_knows() {
    let kitchen = Kitchen::new();
    let script = "trap 'exit 0' TERM; echo $$ > pid; while :; do sleep 0.1; done";
    kitchen.ok(["exec", "-d", "--deadline", "2s", "--shell", script]);
    let pid: u32 = kitchen.file("pid").trim().parse().unwrap();
    let daemon = kitchen.daemon_pid();
    kill(daemon, Signal::KILL);
    poll("it is over", || (!is_there(pid)).then_some(()));
    assert!(!is_there(daemon), "nobody has started another one");
    let ran = kitchen.run(["wait", "process:1"]);
    assert_eq!(ran.code, 124, "{ran:?}");
    let shown = kitchen.json(["show", "process:1"]);
    assert_eq!(shown["detail"], "failed (timeout after 2000 ms)");
    assert_eq!(shown["result"]["exit_code"], 0, "what it made of being asked");
}
