//! `brigade` within a command of Brigade's: it acts as that task.

use crate::kitchen::{BRIGADE, Kitchen};

#[test]
fn what_a_task_starts_is_its_child_and_ends_with_it() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--name", "Sibling", "--", "sleep", "60"]);
    let script = format!(
        "cd /; {BRIGADE} exec -d --name Child -- sleep 60; {BRIGADE} exec -- echo nested; \
         {BRIGADE} ps; {BRIGADE} wait --timeout 50ms Child; echo wait $?"
    );
    let ran = kitchen.run(["exec", "--shell", &script]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[..2], ["process:3", "nested"], "{ran:?}");
    assert!(ran.out.contains("Child") && !ran.out.contains("Sibling"), "{ran:?}");
    assert!(ran.out.ends_with("wait 124\n"), "{ran:?}");
    let child = kitchen.json(["show", "process:3"]);
    assert_eq!((&child["parent"], &child["state"]), (&"2".into(), &"cancelled".into()), "{child}");
    assert_eq!(kitchen.state_of("Sibling"), "running");
}

#[test]
fn a_task_sees_its_agent_through() {
    let kitchen = Kitchen::new();
    // Long enough to be looked at while it works.
    kitchen.script("agent *\nturn\n  delay 500ms\n  say Late.\n");
    let ran = kitchen.run(["exec", "--shell", &format!("{BRIGADE} run x")]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Late.\n"), "{ran:?}");
}

#[test]
fn a_task_neither_sees_nor_stops_its_sibling() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--name", "Sibling", "--", "sleep", "60"]);
    let elsewhere = kitchen.folder("elsewhere");
    kitchen.run_in(&elsewhere, ["exec", "-d", "--", "sleep", "60"]);
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
        let ran = kitchen.run(["exec", "--shell", &script]);
        assert_eq!(ran.code, 126, "{args}: {ran:?}");
    }
    assert_eq!(kitchen.state_of("Sibling"), "running");
    assert_eq!(kitchen.run(["daemon", "status"]).code, 0);
}

#[test]
fn a_tree_shows_who_started_whom() {
    let kitchen = Kitchen::new();
    let inner = format!("{BRIGADE} exec -- sh -c 'echo up > up; sleep 60'");
    kitchen.ok(["exec", "-d", "--name", "Outer", "--shell", &inner]);
    kitchen.file("up");
    let tree = kitchen.ok(["tree"]);
    let lines: Vec<&str> = tree.lines().collect();
    assert!(lines[1].starts_with("└── process:1 Outer  running"), "{tree}");
    assert!(lines[2].starts_with("    └── process:2  running"), "{tree}");
    let json = kitchen.json(["tree"]);
    assert_eq!(json[0]["children"][0]["address"], "process:2");
    assert_eq!(kitchen.json(["stop", "--wait", "Outer"])[0]["tasks"], 2);
    assert_eq!(kitchen.json(["ps"]), serde_json::json!([]));
}

#[test]
fn a_task_starts_no_daemon_that_would_end_with_it() {
    let kitchen = Kitchen::new();
    let script =
        format!("until [ -e go ]; do sleep 0.02; done; {BRIGADE} ps > said 2>&1; echo $? > code");
    kitchen.ok(["exec", "-d", "--shell", &script]);
    kitchen.ok(["daemon", "stop"]);
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    assert_eq!(kitchen.file("code"), "125\n");
    assert!(kitchen.file("said").contains("from within a task"), "{}", kitchen.file("said"));
    assert_eq!(kitchen.run(["daemon", "status"]).code, 127);
    assert_eq!(kitchen.run(["wait", "1"]).code, 0);
}
