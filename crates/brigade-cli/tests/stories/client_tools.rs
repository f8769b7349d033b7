//! Client tools, and other overrides of a definition.

use std::fs;
use std::io::{BufRead, BufReader};

use crate::story_env::{Ran, StoryEnv};

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

fn story() -> StoryEnv {
    let story = StoryEnv::new();
    story.script(SHOWS);
    fs::write(story.project().join("tools.json"), TOOLS).unwrap();
    story
}

#[test]
fn an_agent_waits_for_the_result_of_a_client_tool() {
    let story = story();
    let ran = story.run(["run", "--name", "Cook", "--client-tools", "tools.json", "Show it"]);
    assert_eq!(ran.code, 123, "{}", ran.err);
    let waits = r#"agent:1 waits for its client: open_editor {"file":"soup.md"}"#;
    assert!(ran.err.contains(waits), "{}", ran.err);
    let listed = story.ok(["ps"]);
    assert!(listed.contains(r#"waits for its client: open_editor {"file""#), "{listed}");
    let shown = story.ok(["show", "Cook"]);
    assert!(
        shown.contains(r#"for its client: open_editor {"file":"soup.md"} (question "#),
        "{shown}"
    );
    let json = story.json(["show", "Cook"]);
    assert_eq!(json["questions"][0]["client_call"]["tool"], "open_editor", "{json}");
    assert_eq!(json["questions"][0]["client_call"]["arguments"]["file"], "soup.md");
    story.kill_daemon();
    story.ok(["answer", "Cook", "the cursor is on line 12"]);
    assert_eq!(story.ok(["wait", "Cook"]), "agent:1 (Cook) succeeded\n");
    assert_eq!(story.json(["show", "Cook"])["result"], "Opened.");
}

#[test]
fn wait_reports_a_call_of_a_client_tool() {
    let story = story();
    story.ok(["run", "-d", "--name", "Cook", "--client-tools", "tools.json", "Show it"]);
    let mut waiter = story.start(["wait", "Cook"]);
    let mut note = String::new();
    BufReader::new(waiter.stderr.take().unwrap()).read_line(&mut note).unwrap();
    let waits = r#"agent:1 (Cook) waits for its client: open_editor {"file":"soup.md"}"#;
    assert_eq!(note, format!("brigade: {waits}\n"));
    story.ok(["answer", "Cook", "the cursor is on line 12"]);
    let ran: Ran = waiter.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "agent:1 (Cook) succeeded\n"));
}

#[test]
fn a_client_tool_can_be_denied() {
    let story = story();
    story.script(
        "agent *\nturn\n  call open_editor {\"file\": \"x\"}\nturn\n  when open_editor\n  say No.\n",
    );
    let args = ["run", "--client-tools", "tools.json", "--deny", "open_editor", "Show it"];
    let ran = story.run(args);
    assert_eq!((ran.code, &*ran.out), (0, "No.\n"), "{}", ran.err);
}

#[test]
fn a_run_may_limit_its_steps() {
    let story = StoryEnv::new();
    let calls = "turn\n  call list_tasks {}\nturn\n  call list_tasks {\"state\": \"ended\"}\n";
    story.script(&format!("agent *\n{calls}turn\n  say Done.\n"));
    let ran = story.run(["run", "--steps", "1", "List"]);
    assert!(ran.code != 0 && ran.err.contains("max steps: 1"), "{ran:?}");
    let args = ["run", "--effort", "high", "--temperature", "0.5", "--max-output", "2000", "List"];
    assert_eq!(story.run(args).out, "Done.\n");
}

#[test]
fn invalid_overrides_are_reported_before_anything_starts() {
    let story = story();
    let project = story.project();
    fs::write(project.join("broken.json"), "[{\n \"nam\": \"x\"}]").unwrap();
    fs::write(project.join("spaces.json"), r#"[{"name": "open editor"}]"#).unwrap();
    for (flag, value, part) in [
        ("--temperature", "9", "temperature: it must be from 0 to 2"),
        ("--steps", "0", "steps: it must be at least 1"),
        ("--effort", "huge", "expected one of `low`, `medium`, `high`"),
        ("--client-tools", "nowhere.json", "nowhere.json: "),
        ("--client-tools", "broken.json", "broken.json: unknown field `nam`"),
        ("--client-tools", "broken.json", "at line 2"),
        ("--client-tools", "spaces.json", "spaces.json: client_tools: \"open editor\" is no name"),
    ] {
        let ran = story.run(["run", flag, value, "Show it"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains(part), "{part:?} is not in {}", ran.err);
    }
    assert_eq!(story.json(["ps", "--all"]).as_array().map(Vec::len), Some(0));
}
