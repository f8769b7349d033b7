//! `brigade stop`.

use crate::story_env::{StoryEnv, is_there};

#[test]
fn a_stop_reaches_the_whole_process_tree() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--shell", "sleep 60 & setsid sleep 61 & echo $! > pid; wait"]);
    let pid: u32 = story.file("pid").trim().parse().unwrap();
    let ran = story.run(["stop", "--wait", "--reason", "enough", "1"]);
    assert_eq!((ran.code, &*ran.out), (0, "process:1 cancelled (signal 15)\n"));
    assert!(!is_there(pid));
    assert_eq!(story.run(["wait", "1"]).code, 121);
    // A second stop succeeds and changes nothing.
    let again = story.json(["stop", "1"]);
    assert_eq!(
        (&again[0]["already"], &again[0]["task"]["state"]),
        (&true.into(), &"cancelled".into())
    );
    assert!(story.ok(["events", "--json"]).contains("enough"));
}

#[test]
fn now_skips_the_grace_period() {
    let story = StoryEnv::new();
    let stubborn = "trap '' TERM; echo up > up; while :; do sleep 1; done";
    story.ok(["exec", "-d", "--grace", "1h", "--shell", stubborn]);
    story.ok(["exec", "-d", "--", "sleep", "60"]);
    story.file("up");
    let printed = story.ok(["stop", "--now", "--wait", "1", "2"]);
    let first = printed.lines().next().unwrap();
    assert_eq!(first, "process:1 cancelled (signal 9)", "{printed}");
    assert_eq!(story.json(["ps"]), serde_json::json!([]));
}
