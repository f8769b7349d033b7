//! Tools that whoever started an agent runs, and what else a run changes of its definition.

use std::fs;
use std::io::{BufRead, BufReader};

use crate::kitchen::{Kitchen, Ran};

const SHOWS: &str = r#"
agent *
turn
  call open_editor {"file": "soup.md"}
turn
  when the cursor is on line 12
  say Opened.
"#;

const TOOLS: &str = r#"[{
  "name": "open_editor",
  "description": "Opens a file in the editor.",
  "parameters": {"type": "object", "properties": {"file": {"type": "string"}}}
}]"#;

fn kitchen() -> Kitchen {
    let kitchen = Kitchen::new();
    kitchen.script(SHOWS);
    fs::write(kitchen.project().join("tools.json"), TOOLS).unwrap();
    kitchen
}

#[test]
fn an_agent_waits_for_its_client_and_is_told_what_came_of_it() {
    let kitchen = kitchen();
    let ran = kitchen.run(["run", "--name", "Cook", "--client-tools", "tools.json", "Show it"]);
    assert_eq!(ran.code, 123, "{}", ran.err);
    let waits = r#"agent:1 waits for its client: open_editor {"file":"soup.md"}"#;
    assert!(ran.err.contains(waits), "{}", ran.err);
    let listed = kitchen.ok(["ps"]);
    assert!(listed.contains(r#"waits for its client: open_editor {"file""#), "{listed}");
    let shown = kitchen.ok(["show", "Cook"]);
    assert!(
        shown.contains(r#"for its client: open_editor {"file":"soup.md"} (question "#),
        "{shown}"
    );
    let told = kitchen.json(["show", "Cook"]);
    assert_eq!(told["questions"][0]["client"]["tool"], "open_editor", "{told}");
    assert_eq!(told["questions"][0]["client"]["arguments"]["file"], "soup.md");
    kitchen.kill_daemon();
    kitchen.ok(["answer", "Cook", "the cursor is on line 12"]);
    assert_eq!(kitchen.ok(["wait", "Cook"]), "agent:1 (Cook) succeeded\n");
    assert_eq!(kitchen.json(["show", "Cook"])["result"], "Opened.");
}

#[test]
fn whoever_waits_is_told_that_it_waits_for_its_client() {
    let kitchen = kitchen();
    kitchen.ok(["run", "-d", "--name", "Cook", "--client-tools", "tools.json", "Show it"]);
    let mut waiter = kitchen.start(["wait", "Cook"]);
    let mut said = String::new();
    BufReader::new(waiter.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let waits = r#"agent:1 (Cook) waits for its client: open_editor {"file":"soup.md"}"#;
    assert_eq!(said, format!("brigade: {waits}\n"));
    kitchen.ok(["answer", "Cook", "the cursor is on line 12"]);
    let ran: Ran = waiter.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "agent:1 (Cook) succeeded\n"));
}

#[test]
fn a_client_tool_can_be_denied_like_any_other() {
    let kitchen = kitchen();
    kitchen.script(
        "agent *\nturn\n  call open_editor {\"file\": \"x\"}\nturn\n  when open_editor\n  say No.\n",
    );
    let args = ["run", "--client-tools", "tools.json", "--deny", "open_editor", "Show it"];
    let ran = kitchen.run(args);
    assert_eq!((ran.code, &*ran.out), (0, "No.\n"), "{}", ran.err);
}

#[test]
fn a_run_may_have_fewer_steps_than_usual() {
    let kitchen = Kitchen::new();
    let calls = "turn\n  call list_tasks {}\nturn\n  call list_tasks {\"state\": \"ended\"}\n";
    kitchen.script(&format!("agent *\n{calls}turn\n  say Done.\n"));
    let ran = kitchen.run(["run", "--steps", "1", "List"]);
    assert!(ran.code != 0 && ran.err.contains("max steps: 1"), "{ran:?}");
    let args = ["run", "--effort", "high", "--temperature", "0.5", "--max-output", "2000", "List"];
    assert_eq!(kitchen.run(args).out, "Done.\n");
}

#[test]
fn what_makes_no_sense_is_told_with_its_place_before_anything_starts() {
    let kitchen = kitchen();
    let project = kitchen.project();
    fs::write(project.join("broken.json"), "[{\n \"nam\": \"x\"}]").unwrap();
    fs::write(project.join("spaces.json"), r#"[{"name": "open editor"}]"#).unwrap();
    for (flag, value, part) in [
        ("--temperature", "9", "temperature: it must be from 0 to 2"),
        ("--steps", "0", "steps: without a step nothing is done"),
        ("--effort", "huge", "expected one of `low`, `medium`, `high`"),
        ("--client-tools", "nowhere.json", "nowhere.json: "),
        ("--client-tools", "broken.json", "broken.json: unknown field `nam`"),
        ("--client-tools", "broken.json", "at line 2"),
        ("--client-tools", "spaces.json", "spaces.json: client_tools: \"open editor\" is no name"),
    ] {
        let ran = kitchen.run(["run", flag, value, "Show it"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains(part), "{part:?} is not in {}", ran.err);
    }
    assert_eq!(kitchen.json(["ps", "--all"]).as_array().map(Vec::len), Some(0));
}
