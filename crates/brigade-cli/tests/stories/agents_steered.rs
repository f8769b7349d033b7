//! Messages to and from agents.

use std::io::{BufRead, BufReader};

use crate::story_env::{Ran, StoryEnv, poll};

/// A model call that does not end, unless the agent gets a message.
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
fn an_interrupting_message_is_read_during_a_model_call() {
    let story = StoryEnv::new();
    story.script(SLOW);
    story.ok(["run", "-d", "Take your time"]);
    let thinking = || story.json(["show", "1"])["progress"]["activity"] == "thinking";
    poll("a model call", || thinking().then_some(()));
    assert_eq!(story.ok(["send", "--interrupt", "agent:1", "hurry"]), "");
    assert_eq!(story.ok(["wait", "--timeout", "30s", "agent:1"]), "agent:1 succeeded\n");
    assert_eq!(story.json(["show", "agent:1"])["result"], "Hurried.");
}

#[test]
fn a_message_to_a_cancelled_agent_is_read_before_its_first_model_call() {
    let story = StoryEnv::new();
    story.script(SLOW);
    story.ok(["run", "-d", "Take your time"]);
    let thinking = || story.json(["show", "1"])["progress"]["activity"] == "thinking";
    poll("a model call", || thinking().then_some(()));
    story.ok(["stop", "agent:1"]);
    story.until_state("agent:1", "cancelled");
    story.ok(["send", "agent:1", "hurry"]);
    assert_eq!(story.ok(["wait", "--timeout", "30s", "agent:1"]), "agent:1 succeeded\n");
    assert_eq!(story.json(["show", "agent:1"])["result"], "Hurried.");
}

#[test]
fn a_process_cannot_be_interrupted_by_a_message() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--stdin", "--", "cat"]);
    let ran = story.run(["send", "--interrupt", "1", "hurry"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("process:1 is handed every message at once"), "{}", ran.err);
    assert!(!story.ok(["events"]).contains("message sent"));
}

/// Reports its progress, asks a question, and ends.
const REPORTING: &str = r#"
agent *
turn
  call send_message {"to": "parent", "message": "Half done."}
turn
  call ask_parent {"question": "Go on?"}
turn
  say Done.
"#;

#[test]
fn messages_of_an_agent_stay_in_the_inbox_until_they_are_read() {
    let story = StoryEnv::new();
    story.script(REPORTING);
    assert_eq!(story.ok(["inbox"]), "", "there is no session yet");
    assert_eq!(story.run(["inbox", "Cook"]).code, 127, "there is no task yet");
    story.ok(["run", "-d", "--name", "Cook", "Make soup"]);
    story.until_state("Cook", "waiting");
    let unread = story.json(["inbox", "--peek"]);
    assert_eq!((&unread[0]["from"], &unread[0]["text"]), (&"agent:1".into(), &"Half done.".into()));
    let printed = story.ok(["inbox", "Cook"]);
    let (note, question) = printed.split_once('\n').unwrap();
    assert!(
        note.starts_with("agent:1 (Cook) says (") && note.ends_with("): Half done."),
        "{printed}"
    );
    assert!(
        question.starts_with("agent:1 (Cook) asks (") && question.ends_with("): Go on?\n"),
        "{printed}"
    );
    assert_eq!(story.ok(["inbox"]), "", "it was read");
    let all = story.json(["inbox", "--all"]);
    assert_eq!((&all[0]["number"], &all[0]["receipt"]), (&1.into(), &"read".into()));
    story.ok(["answer", "Cook", "yes"]);
    assert_eq!(story.ok(["wait", "Cook"]), "agent:1 (Cook) succeeded\n");
}

#[test]
fn run_prints_messages_of_its_agent() {
    let story = StoryEnv::new();
    story.script(&REPORTING.replace("  call ask_parent {\"question\": \"Go on?\"}\nturn\n", ""));
    let ran = story.run(["run", "--name", "Cook", "Make soup"]);
    assert_eq!((ran.code, &*ran.out), (0, "Done.\n"), "{}", ran.err);
    assert_eq!(
        ran.err.matches("brigade: agent:1 (Cook) says: Half done.\n").count(),
        1,
        "{}",
        ran.err
    );
    assert_eq!(story.ok(["inbox"]), "", "it was read");
}

#[test]
fn named_messages_of_an_agent_are_shown_with_their_name() {
    let story = StoryEnv::new();
    let named = r#"{"to": "parent", "message": "Half done.", "name": "progress) \"x"}"#;
    story.script(&format!("agent *\nturn\n  call send_message {named}\nturn\n  say Done.\n"));
    let ran = story.run(["run", "--name", "Cook", "Make soup"]);
    let printed = r#"agent:1 (Cook) says (named "progress) \"x"): Half done."#;
    assert!(ran.err.contains(printed), "{}", ran.err);
    let all = story.json(["inbox", "--all"]);
    assert_eq!(all[0]["message_name"], "progress) \"x");
    let printed = story.ok(["inbox", "--all"]);
    assert!(
        printed.contains(r#" ago, read before, named "progress) \"x"): Half done."#),
        "{printed}"
    );
}

#[test]
fn a_wait_without_a_timeout_prints_questions() {
    let story = StoryEnv::new();
    story.script(REPORTING);
    story.ok(["run", "-d", "--name", "Cook", "Make soup"]);
    let mut waiter = story.start(["wait", "Cook"]);
    let mut err = BufReader::new(waiter.stderr.take().unwrap());
    let mut notes = [String::new(), String::new()];
    for line in &mut notes {
        err.read_line(line).unwrap();
    }
    assert_eq!(notes[0], "brigade: agent:1 (Cook) waits for an answer to: Go on?\n");
    assert_eq!(notes[1], "brigade: `brigade answer agent:1 TEXT` answers it\n");
    story.ok(["answer", "Cook", "yes"]);
    let ran: Ran = waiter.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "agent:1 (Cook) succeeded\n"));
    let rest: Vec<String> = err.lines().map(Result::unwrap).collect();
    assert!(rest.is_empty(), "printed once: {rest:?}");
}

#[test]
fn an_earlier_run_is_shown_as_it_ended() {
    let story = StoryEnv::new();
    story.script("agent *\nturn\n  say In English.\nturn\n  when French\n  say En français.\n");
    story.ok(["run", "--name", "Poet", "Write"]);
    story.ok(["send", "Poet", "And in French?"]);
    story.ok(["wait", "Poet"]);
    let first = story.json(["show", "1#1"]);
    let last = story.json(["show", "1"]);
    assert_eq!((&first["run"], &first["result"]), (&1.into(), &"In English.".into()));
    assert_eq!((&last["run"], &last["result"]), (&2.into(), &"En français.".into()));
    assert_eq!((&first["address"], &first["kind"]), (&"agent:1#1".into(), &"agent".into()));
    assert_eq!(story.json(["show", "1#2"]), last);
    assert_eq!(story.run(["show", "1#3"]).code, 127);
}
