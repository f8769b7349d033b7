//! Saying something to agents, and hearing from them.

use std::io::{BufRead, BufReader};

use crate::kitchen::{Kitchen, Ran, poll};

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

/// Says how far it is, then asks, then is done.
const TELLING: &str = r#"
agent *
turn
  call send_message {"to": "parent", "message": "Half done."}
turn
  call ask_parent {"question": "Go on?"}
turn
  say Done.
"#;

#[test]
fn what_an_agent_says_on_the_way_is_in_the_inbox_until_it_is_read() {
    let kitchen = Kitchen::new();
    kitchen.script(TELLING);
    assert_eq!(kitchen.ok(["inbox"]), "", "there is not even a workspace");
    assert_eq!(kitchen.run(["inbox", "Cook"]).code, 127, "let alone a cook");
    kitchen.ok(["run", "-d", "--name", "Cook", "Make soup"]);
    kitchen.until_state("Cook", "waiting");
    let unread = kitchen.json(["inbox", "--peek"]);
    assert_eq!((&unread[0]["from"], &unread[0]["text"]), (&"agent:1".into(), &"Half done.".into()));
    let said = kitchen.ok(["inbox", "Cook"]);
    let (note, question) = said.split_once('\n').unwrap();
    assert!(note.starts_with("agent:1 (Cook) says (") && note.ends_with("): Half done."), "{said}");
    assert!(
        question.starts_with("agent:1 (Cook) asks (") && question.ends_with("): Go on?\n"),
        "{said}"
    );
    assert_eq!(kitchen.ok(["inbox"]), "", "it was read");
    let all = kitchen.json(["inbox", "--all"]);
    assert_eq!((&all[0]["number"], &all[0]["receipt"]), (&1.into(), &"read".into()));
    kitchen.ok(["answer", "Cook", "yes"]);
    assert_eq!(kitchen.ok(["wait", "Cook"]), "agent:1 (Cook) succeeded\n");
}

#[test]
fn whoever_looks_on_is_told_what_the_agent_says() {
    let kitchen = Kitchen::new();
    kitchen.script(&TELLING.replace("  call ask_parent {\"question\": \"Go on?\"}\nturn\n", ""));
    let ran = kitchen.run(["run", "--name", "Cook", "Make soup"]);
    assert_eq!((ran.code, &*ran.out), (0, "Done.\n"), "{}", ran.err);
    assert_eq!(
        ran.err.matches("brigade: agent:1 (Cook) says: Half done.\n").count(),
        1,
        "{}",
        ran.err
    );
    assert_eq!(kitchen.ok(["inbox"]), "", "it was read");
}

#[test]
fn a_wait_without_patience_says_who_waits_for_an_answer() {
    let kitchen = Kitchen::new();
    kitchen.script(TELLING);
    kitchen.ok(["run", "-d", "--name", "Cook", "Make soup"]);
    let mut waiter = kitchen.start(["wait", "Cook"]);
    let mut err = BufReader::new(waiter.stderr.take().unwrap());
    let mut said = [String::new(), String::new()];
    for line in &mut said {
        err.read_line(line).unwrap();
    }
    assert_eq!(said[0], "brigade: agent:1 (Cook) waits for an answer to: Go on?\n");
    assert_eq!(said[1], "brigade: `brigade answer agent:1 TEXT` gives it\n");
    kitchen.ok(["answer", "Cook", "yes"]);
    let ran: Ran = waiter.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "agent:1 (Cook) succeeded\n"));
    let rest: Vec<String> = err.lines().map(Result::unwrap).collect();
    assert!(rest.is_empty(), "once: {rest:?}");
}

#[test]
fn an_earlier_run_is_shown_as_it_ended() {
    let kitchen = Kitchen::new();
    kitchen.script("agent *\nturn\n  say In English.\nturn\n  when French\n  say En français.\n");
    kitchen.ok(["run", "--name", "Poet", "Write"]);
    kitchen.ok(["send", "Poet", "And in French?"]);
    kitchen.ok(["wait", "Poet"]);
    let (first, last) = (kitchen.json(["show", "1#1"]), kitchen.json(["show", "1"]));
    assert_eq!((&first["run"], &first["result"]), (&1.into(), &"In English.".into()));
    assert_eq!((&last["run"], &last["result"]), (&2.into(), &"En français.".into()));
    assert_eq!((&first["address"], &first["kind"]), (&"agent:1#1".into(), &"agent".into()));
    assert_eq!(kitchen.json(["show", "1#2"]), last);
    assert_eq!(kitchen.run(["show", "1#3"]).code, 127);
}
