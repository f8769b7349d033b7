//! `brigade wait`.

use crate::story_env::{Ran, StoryEnv};

const UNTIL_GO: &str = "until [ -e go ]; do sleep 0.02; done; exit 6";

#[test]
fn the_exit_code_is_the_tasks() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--name", "Gate", "--shell", UNTIL_GO]);
    let waiter = story.start(["wait", "Gate"]);
    std::fs::write(story.project().join("go"), "").unwrap();
    let ran: Ran = waiter.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (6, "process:1 (Gate) failed (6)\n"));
    // The result can be read again.
    assert_eq!(story.run(["wait", "1"]).code, 6);
    assert_eq!(story.run(["wait", "Gate"]).code, 6);
}

#[test]
fn a_timeout_ends_the_wait_and_not_the_task() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--", "sleep", "60"]);
    let ran = story.run(["wait", "--timeout", "100ms", "1"]);
    assert_eq!((ran.code, &*ran.out), (124, ""));
    assert!(ran.err.contains("still running"), "{}", ran.err);
    assert_eq!(story.state_of("1"), "running");
    for bad in ["-1", "soon", "1e400"] {
        assert_eq!(story.run(["wait", "--timeout", bad, "1"]).code, 2, "{bad}");
    }
}

#[test]
fn any_waits_for_one_task_and_all_for_every_task() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--shell", UNTIL_GO]);
    story.ok(["exec", "-d", "--shell", "exit 0"]);
    story.ok(["exec", "-d", "--shell", "exit 9"]);
    let ran = story.run(["wait", "--any", "1", "2"]);
    assert_eq!((ran.code, &*ran.out), (0, "process:2 succeeded\n"));
    let json = story.json(["wait", "--any", "1", "2"]);
    assert_eq!(json["ended"][0]["address"], "process:2");
    assert_eq!(json["still_running"][0]["address"], "process:1");
    assert_eq!(json["timed_out"], false);

    let late = story.run(["wait", "--timeout", "100ms", "--json", "1", "2"]);
    let json: serde_json::Value = serde_json::from_str(&late.out).unwrap();
    assert_eq!((late.code, &json["timed_out"]), (124, &true.into()));
    assert_eq!(json["ended"][0]["address"], "process:2", "an ended task is not still running");

    let all = story.start(["wait", "2", "3", "1"]);
    std::fs::write(story.project().join("go"), "").unwrap();
    let ran: Ran = all.wait_with_output().unwrap().into();
    let expect = "process:2 succeeded\nprocess:3 failed (9)\nprocess:1 failed (6)\n";
    assert_eq!((ran.code, &*ran.out), (9, expect), "in the order of the arguments");
}

#[test]
fn without_an_address_it_waits_for_all_tasks() {
    let story = StoryEnv::new();
    let idle = story.run(["wait"]);
    assert_eq!((idle.code, &*idle.out, &*idle.err), (0, "", "brigade: no tasks run here\n"));
    let nothing = serde_json::json!({ "ended": [], "still_running": [], "timed_out": false });
    assert_eq!(story.json(["wait"]), nothing);
    story.ok(["exec", "-d", "--shell", "sleep 0.2; exit 4"]);
    story.ok(["exec", "-d", "--", "sleep", "0.1"]);
    assert_eq!(story.run(["wait"]).code, 4);
    assert_eq!(story.json(["ps"]), serde_json::json!([]));
}

#[test]
fn a_failure_is_printed_with_its_reason() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--deadline", "100ms", "--name", "Late", "--", "sleep", "100"]);
    story.ok(["exec", "-d", "--name", "Absent", "--", "/nonexistent/program"]);
    story.ok(["exec", "-d", "--name", "Wrong", "--", "sh", "-c", "exit 3"]);
    for (name, expect) in [
        ("Late", "failed (timeout after 100 ms)"),
        ("Absent", "failed (error: "),
        ("Wrong", "failed (3)"),
    ] {
        let waited = story.run(["wait", name]);
        assert_ne!(waited.code, 0, "{waited:?}");
        assert!(waited.out.contains(expect), "{name}: {waited:?}");
        let listed = story.ok(["ps", "--ended"]);
        let line = listed.lines().find(|line| line.contains(name)).unwrap();
        assert!(line.contains(expect), "{line}");
    }
}
