//! Sending lines to a command.

use crate::kitchen::{Kitchen, Ran};

#[test]
fn lines_arrive_in_order_and_the_end_ends_it() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--stdin", "--name", "Numbers", "--", "cat", "-n"]);
    assert_eq!(kitchen.ok(["send", "Numbers", "one"]), "");
    assert_eq!(kitchen.run_with_input(["send", "Numbers", "-"], "two\nthree\n").code, 0);
    assert_eq!(
        kitchen.json(["send", "Numbers", "four", "--close"])["messages"],
        serde_json::json!([4, 5])
    );
    assert_eq!(kitchen.run(["wait", "Numbers"]).code, 0);
    assert_eq!(
        kitchen.ok(["logs", "1"]),
        "     1\tone\n     2\ttwo\n     3\tthree\n     4\tfour\n"
    );
    let late = kitchen.run(["send", "Numbers", "five"]);
    assert_eq!(late.code, 120, "{}", late.err);
    assert!(late.err.contains("process:1 has succeeded and takes no more messages"), "{late:?}");
    assert_eq!(kitchen.run(["send", "Nobody", "x"]).code, 127);
    assert_eq!(kitchen.run(["send", "Numbers"]).code, 2);
}

#[test]
fn a_command_without_an_input_is_named_with_the_way_out() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--name", "Deaf", "--", "sleep", "1000"]);
    for words in [&["send", "Deaf", "hello"] as &[&str], &["send", "Deaf", "--close"]] {
        let sent = Ran::from(kitchen.command(words).output().unwrap());
        assert_eq!(sent.code, 2, "{sent:?}");
        assert!(sent.err.contains("process:1 was started without an input"), "{sent:?}");
        assert!(sent.err.contains("`brigade exec --stdin`"), "{sent:?}");
    }
    let events = kitchen.ok(["events"]);
    assert!(!events.contains("message"), "nothing happened: {events}");
    kitchen.ok(["exec", "-d", "--pty", "--name", "Typed", "--", "cat"]);
    kitchen.ok(["send", "Typed", "a terminal can be typed on"]);
    kitchen.ok(["stop", "Deaf", "Typed"]);
}

#[test]
fn a_line_that_is_too_long_is_named() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--stdin", "--name", "Reader", "--", "cat"]);
    let lines = format!("short\n{}\n", "x".repeat(2_000_000));
    let sent = kitchen.run_with_input(["send", "Reader", "-"], &lines);
    assert_eq!(sent.code, 2, "{sent:?}");
    assert!(sent.err.contains("line 2 of the input: it has 2000002 bytes"), "{sent:?}");
    assert!(sent.err.contains("put it into a file"), "{sent:?}");
    kitchen.ok(["stop", "Reader"]);
}
