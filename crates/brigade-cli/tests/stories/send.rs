//! `brigade send`.

use crate::story_env::{Ran, StoryEnv};

#[test]
fn lines_arrive_in_order_and_close_ends_the_process() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--stdin", "--name", "Numbers", "--", "cat", "-n"]);
    assert_eq!(story.ok(["send", "Numbers", "one"]), "");
    assert_eq!(story.run_with_input(["send", "Numbers", "-"], "two\nthree\n").code, 0);
    assert_eq!(
        story.json(["send", "Numbers", "four", "--close"])["messages"],
        serde_json::json!([4, 5])
    );
    assert_eq!(story.run(["wait", "Numbers"]).code, 0);
    assert_eq!(story.ok(["logs", "1"]), "     1\tone\n     2\ttwo\n     3\tthree\n     4\tfour\n");
    let late = story.run(["send", "Numbers", "five"]);
    assert_eq!(late.code, 120, "{}", late.err);
    assert!(late.err.contains("process:1 has succeeded and takes no more messages"), "{late:?}");
    assert_eq!(story.run(["send", "Nobody", "x"]).code, 127);
    assert_eq!(story.run(["send", "Numbers"]).code, 2);
}

#[test]
fn a_process_without_stdin_is_reported_with_a_hint() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--name", "Deaf", "--", "sleep", "1000"]);
    for words in [&["send", "Deaf", "hello"] as &[&str], &["send", "Deaf", "--close"]] {
        let sent = Ran::from(story.command(words).output().unwrap());
        assert_eq!(sent.code, 2, "{sent:?}");
        assert!(sent.err.contains("process:1 was started without an input"), "{sent:?}");
        assert!(sent.err.contains("`brigade exec --stdin`"), "{sent:?}");
    }
    let events = story.ok(["events"]);
    assert!(!events.contains("message"), "no event: {events}");
    story.ok(["exec", "-d", "--pty", "--name", "Typed", "--", "cat"]);
    story.ok(["send", "Typed", "a terminal can be typed on"]);
    story.ok(["stop", "Deaf", "Typed"]);
}

#[test]
fn a_line_that_is_too_long_is_reported() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--stdin", "--name", "Reader", "--", "cat"]);
    let lines = format!("short\n{}\n", "x".repeat(2_000_000));
    let sent = story.run_with_input(["send", "Reader", "-"], &lines);
    assert_eq!(sent.code, 2, "{sent:?}");
    assert!(sent.err.contains("line 2 of the input: it has 2000002 bytes"), "{sent:?}");
    assert!(sent.err.contains("put it into a file"), "{sent:?}");
    story.ok(["stop", "Reader"]);
}
