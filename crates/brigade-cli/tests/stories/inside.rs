//! `brigade` within a process of Brigade acts as that task.

use crate::story_env::{BRIGADE, StoryEnv};

#[test]
fn a_task_started_within_a_task_is_its_child_and_ends_with_it() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--name", "Sibling", "--", "sleep", "60"]);
    let script = format!(
        "cd /; {BRIGADE} exec -d --name Child -- sleep 60; {BRIGADE} exec -- echo nested; \
         {BRIGADE} ps; {BRIGADE} wait --timeout 50ms Child; echo wait $?"
    );
    let ran = story.run(["exec", "--shell", &script]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[..2], ["process:3", "nested"], "{ran:?}");
    assert!(ran.out.contains("Child") && !ran.out.contains("Sibling"), "{ran:?}");
    assert!(ran.out.ends_with("wait 124\n"), "{ran:?}");
    let child = story.json(["show", "process:3"]);
    assert_eq!((&child["parent"], &child["state"]), (&"2".into(), &"cancelled".into()), "{child}");
    assert_eq!(story.state_of("Sibling"), "running");
}

#[test]
fn a_task_waits_for_its_agent() {
    let story = StoryEnv::new();
    // Long enough for the live view to poll.
    story.script("agent *\nturn\n  delay 500ms\n  say Late.\n");
    let ran = story.run(["exec", "--shell", &format!("{BRIGADE} run x")]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Late.\n"), "{ran:?}");
}

#[test]
fn a_task_neither_sees_nor_stops_its_sibling() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--name", "Sibling", "--", "sleep", "60"]);
    let elsewhere = story.directory("elsewhere");
    story.run_in(&elsewhere, ["exec", "-d", "--", "sleep", "60"]);
    let foreign = format!("{}/process:1", elsewhere.display());
    let table = [
        "show 1",
        "stop 1",
        "logs 1",
        "wait 1",
        "send 1 x",
        &format!("stop {foreign}"),
        "-w elsewhere ps",
        "events --all",
        "prune",
        "daemon stop",
        "close",
        "sessions --all",
    ];
    for args in table {
        let script = format!("{BRIGADE} {args}");
        let ran = story.run(["exec", "--shell", &script]);
        assert_eq!(ran.code, 126, "{args}: {ran:?}");
    }
    assert_eq!(story.state_of("Sibling"), "running");
    assert_eq!(story.run(["daemon", "status"]).code, 0);
}

#[test]
fn a_tree_shows_parents_and_children() {
    let story = StoryEnv::new();
    let inner = format!("{BRIGADE} exec -- sh -c 'echo up > up; sleep 60'");
    story.ok(["exec", "-d", "--name", "Outer", "--shell", &inner]);
    story.file("up");
    let tree = story.ok(["tree"]);
    let lines: Vec<&str> = tree.lines().collect();
    assert!(lines[1].starts_with("└── process:1 Outer  running"), "{tree}");
    assert!(lines[2].starts_with("    └── process:2  running"), "{tree}");
    let json = story.json(["tree"]);
    assert_eq!(json[0]["children"][0]["address"], "process:2");
    assert_eq!(story.json(["stop", "--wait", "Outer"])[0]["task_count"], 2);
    assert_eq!(story.json(["ps"]), serde_json::json!([]));
}

#[test]
fn a_task_starts_no_daemon_that_would_end_with_it() {
    let story = StoryEnv::new();
    let script = format!(
        "until [ -e go ]; do sleep 0.02; done; {BRIGADE} ps > printed 2>&1; echo $? > code"
    );
    story.ok(["exec", "-d", "--shell", &script]);
    story.ok(["daemon", "stop"]);
    std::fs::write(story.project().join("go"), "").unwrap();
    assert_eq!(story.file("code"), "125\n");
    assert!(story.file("printed").contains("from within a task"), "{}", story.file("printed"));
    assert_eq!(story.run(["daemon", "status"]).code, 127);
    assert_eq!(story.run(["wait", "1"]).code, 0);
}
