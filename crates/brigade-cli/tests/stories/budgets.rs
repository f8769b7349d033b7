//! Budgets, limits and stalls, as they are given and seen.

use std::process::Command;

use crate::kitchen::{BRIGADE, Kitchen, Ran, poll};

const GUIDE: &str = include_str!("../../../../docs/budgets.md");

/// Says something, and then nothing any more.
const HANGING: &str = r#"
agent *
turn
  say So far, so good.
  call list_tasks {}
turn
  fault hang always
  say Never.
"#;

#[test]
fn a_silent_agent_is_seen_to_be_nudged_and_ends_as_stalled_with_its_last_words() {
    let kitchen = Kitchen::new();
    kitchen.script(HANGING);
    kitchen.ok(["run", "-d", "--stall", "2s", "--name", "Cook", "Cook"]);
    let shown = poll("it is nudged", || {
        let shown = kitchen.ok(["show", "Cook"]);
        shown.contains("nudged 1 time").then_some(shown)
    });
    assert!(shown.contains("alive      yes, "), "{shown}");
    assert!(shown.contains("2s of silence"), "{shown}");
    let ran = kitchen.run(["wait", "Cook"]);
    assert_eq!(ran.code, 120, "{ran:?}");
    let shown = kitchen.json(["show", "Cook"]);
    assert!(shown["detail"].as_str().unwrap().contains("stalled: nothing happened for"), "{shown}");
    assert_eq!(shown["result"], "So far, so good.");
    let said = kitchen.ok(["show", "Cook"]);
    assert!(said.contains("<note from=\"brigade\">"), "{said}");
}

#[test]
fn an_agent_that_is_busy_is_alive_and_moves() {
    let kitchen = Kitchen::new();
    kitchen.script(
        "agent *\nturn\n  pace 100ms\n  say Words and words. \n  delay 60s\n  say Never.\n",
    );
    kitchen.ok(["run", "-d", "--stall", "off", "--max-spawns", "5/min", "Cook"]);
    kitchen.until_state("1", "running");
    let shown = kitchen.ok(["show", "1"]);
    assert!(shown.contains("alive      yes, and something happened"), "{shown}");
    assert!(shown.contains("5/min started, any silence"), "{shown}");
    let listed = kitchen.ok(["ps"]);
    assert!(listed.starts_with("TASK     NAME  STATE    AGE"), "{listed}");
    assert!(listed.lines().next().unwrap().contains("MOVED"), "{listed}");
}

#[test]
fn who_starts_tasks_too_fast_is_told_so_and_goes_on() {
    let kitchen = Kitchen::new();
    kitchen.script(
        r#"
agent Boss
turn
  call spawn_agent {"name": "One", "task": "Look.", "wait": true}
turn
  call spawn_agent {"name": "Two", "task": "Look.", "wait": true}
turn
  when the spawn rate of agent:1 is reached: 1/h; try again in
  say One is enough.

agent *
turn
  say Seen.
"#,
    );
    let ran = kitchen.run(["run", "--name", "Boss", "--max-spawns", "1/h", "Go"]);
    assert_eq!((ran.code, &*ran.out), (0, "One is enough.\n"), "{}", ran.err);
    assert_eq!(kitchen.json(["ps", "--ended"]).as_array().unwrap().len(), 2);
}

#[test]
fn a_budget_is_told_before_it_bites_and_more_lets_the_agent_go_on() {
    let kitchen = Kitchen::new();
    kitchen.script(
        r#"
agent *
usage input=100 output=3900
turn
  when 4,000 tokens of 8,000 tokens left
  say Told.
turn
  when Go on
  say All of it.
turn
  say Half.
  call list_tasks {}
"#,
    );
    let ran = kitchen.run(["run", "--budget", "8k", "--name", "Cook", "Cook"]);
    assert_eq!((ran.code, &*ran.out), (122, "Half.\n"), "{}", ran.err);
    kitchen.ok(["resume", "Cook", "--budget", "100k", "--max-spawns", "3/h"]);
    assert_eq!(kitchen.ok(["wait", "Cook"]), "agent:1 (Cook) succeeded\n");
    let shown = kitchen.json(["show", "Cook"]);
    assert_eq!(shown["result"], "All of it.");
    assert_eq!(shown["limits"]["tokens"], 100_000);
    assert_eq!(shown["limits"]["depth"], 8, "what was not mentioned stays: {shown}");
}

#[test]
fn a_delegate_that_is_not_there_is_told_by_file_line_and_field() {
    let kitchen = Kitchen::new();
    kitchen.script("agent *\nturn\n  say Done.\n");
    let cook =
        "---\nname: cook\ndescription: Cooks.\nmay_delegate_to: [general, waitr]\n---\nCook.";
    kitchen.define("cook", cook);
    let waiter = "---\nname: waiter\ndescription: Waits.\nmay_delegate_to: [cook]\n---\nWait.";
    kitchen.define("waiter", waiter);
    kitchen.trust();
    let expect =
        "cook.md:4: `may_delegate_to`: `waitr` is no agent definition; did you mean `waiter`?";
    let ran = kitchen.run(["run", "--agent", "cook", "Cook"]);
    assert!(ran.code != 0 && ran.err.contains(expect), "{ran:?}");
    let listed = kitchen.run(["agents"]);
    assert!(listed.code == 0 && listed.err.contains(expect), "{listed:?}");
    assert_eq!(kitchen.json(["ps", "--ended"]), serde_json::json!([]), "nothing was started");
}

/// Every command of the guide is one that is understood, in the order in which they stand.
#[test]
fn the_commands_of_the_guide_are_understood() {
    let kitchen = Kitchen::new();
    kitchen.script("agent *\nturn\n  say Done.\n");
    kitchen.define("reviewer", guide("markdown").next().unwrap());
    let folder = std::path::Path::new(BRIGADE).parent().unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let mut count = 0;
    for line in guide("sh").flat_map(str::lines) {
        if line.starts_with("brigade resume") {
            kitchen.run(["wait", "1"]);
        }
        let mut shell = Command::new("/bin/sh");
        kitchen.hermetic(shell.args(["-c", line]));
        let ran = Ran::from(shell.env("PATH", &path).output().unwrap());
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
        count += 1;
    }
    assert_eq!(count, 5);
    let listed = kitchen.run(["agents"]);
    assert!(listed.out.contains("reviewer") && listed.err.is_empty(), "{listed:?}");
}

/// The examples in one language.
fn guide(language: &str) -> impl Iterator<Item = &'static str> {
    let begin = format!("```{language}\n");
    let blocks: Vec<&str> = GUIDE.split(begin.as_str()).skip(1).collect();
    blocks.into_iter().filter_map(|block| block.split("```").next())
}
