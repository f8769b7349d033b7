//! Nodes of a fleet, as a daemon without one and as a caller without rights sees them.

use serde_json::json;

use crate::story_env::{BRIGADE, StoryEnv};

#[test]
fn a_daemon_without_a_fleet_says_so_in_one_line() {
    let story = StoryEnv::new();
    let listed = story.run(["nodes"]);
    assert_eq!((listed.code, &*listed.out), (0, ""));
    assert_eq!(listed.err.lines().count(), 1, "{}", listed.err);
    assert!(listed.err.contains("no node of a fleet; `--store postgres://…`"), "{}", listed.err);
    assert_eq!(story.json(["nodes"]), json!({ "fleet": false, "items": [] }));
    story.ok(["exec", "--", "true"]);
    let sessions = story.json(["sessions"]);
    assert_eq!(sessions[0].get("node"), None);
    assert!(!story.ok(["sessions"]).contains("NODE"));
    let session = sessions[0]["name"].as_str().unwrap();
    for refused in [
        story.run(["drain", "one"]),
        story.run(["drain", "one", "--undo"]),
        story.run(["drain", "one", "--wait", "--timeout", "1s"]),
        story.run(["move", session, "one"]),
        story.run(["move", "/no/such/session", "one", "--wait"]),
    ] {
        assert_eq!((refused.code, &*refused.out), (2, ""), "{refused:?}");
        assert!(refused.err.contains("no node of a fleet"), "{refused:?}");
    }
}

#[test]
fn options_of_a_wait_need_it() {
    let story = StoryEnv::new();
    for refused in [
        story.run(["drain", "one", "--timeout", "1s"]),
        story.run(["drain", "one", "--undo", "--wait"]),
        story.run(["move", "kitchen", "one", "--timeout", "1s"]),
        story.run(["move", "kitchen"]),
    ] {
        assert_eq!(refused.code, 2, "{refused:?}");
    }
}

#[test]
fn a_task_neither_drains_nor_moves() {
    let story = StoryEnv::new();
    let drained = story.run(["exec", "--", BRIGADE, "drain", "one"]);
    assert_eq!(drained.code, 126, "{drained:?}");
    assert!(drained.err.contains("only the operator may drain nodes"), "{drained:?}");
    let moved = story.run(["exec", "--", BRIGADE, "move", "kitchen", "one"]);
    assert_eq!(moved.code, 126, "{moved:?}");
    assert!(moved.err.contains("only the operator may move sessions"), "{moved:?}");
}
