//! Saying something to agents, and hearing from them.

use crate::kitchen::{Kitchen, poll};

/// Would speak for ever, unless it is told to hurry.
const SLOW: &str = "
agent *
turn
  when hurry
  say Hurried.
turn
  delay 600s
  say Never.
";

#[test]
fn an_interrupting_message_is_heard_within_a_model_call() {
    let kitchen = Kitchen::new();
    kitchen.script(SLOW);
    kitchen.ok(["run", "-d", "Take your time"]);
    let thinking = || kitchen.json(["show", "1"])["progress"]["doing"] == "thinking";
    poll("it listens to its model", || thinking().then_some(()));
    assert_eq!(kitchen.ok(["send", "--interrupt", "agent:1", "hurry"]), "");
    assert_eq!(kitchen.ok(["wait", "--timeout", "30s", "agent:1"]), "agent:1 succeeded\n");
    assert_eq!(kitchen.json(["show", "agent:1"])["result"], "Hurried.");
}

#[test]
fn a_command_has_nothing_to_interrupt() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--stdin", "--", "cat"]);
    let ran = kitchen.run(["send", "--interrupt", "1", "hurry"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("process:1 is handed every message at once"), "{}", ran.err);
    assert!(!kitchen.ok(["events"]).contains("message sent"));
}
