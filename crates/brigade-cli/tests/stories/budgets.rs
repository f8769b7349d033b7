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
    assert!(said.contains("<note from=\"brigade\""), "{said}");
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
    assert_eq!(count, 6);
    let listed = kitchen.run(["agents"]);
    assert!(listed.out.contains("reviewer") && listed.err.is_empty(), "{listed:?}");
}

/// The examples in one language.
fn guide(language: &str) -> impl Iterator<Item = &'static str> {
    let begin = format!("```{language}\n");
    let blocks: Vec<&str> = GUIDE.split(begin.as_str()).skip(1).collect();
    blocks.into_iter().filter_map(|block| block.split("```").next())
}

/// An agent that spends 4,000 tokens with each of many steps, each another one.
fn spender() -> String {
    let step = |step| format!("turn\n  call run_process {{\"command\": \"echo {step}\"}}\n");
    let steps: String = (0..20).map(step).collect();
    format!("agent *\nusage input=100 output=3900\n{steps}turn\n  say All of it.\n")
}

/// A boss that leaves two of them behind and ends.
fn leaving() -> String {
    format!(
        r#"
agent Boss
usage input=100 output=3900
turn
  call spawn_agent {{"name": "One", "task": "Cook.", "keep": true}}
  call spawn_agent {{"name": "Two", "task": "Cook.", "keep": true}}
turn
  say They cook.

{}"#,
        spender()
    )
}

fn start(kitchen: &Kitchen, limit: [&str; 2]) {
    let [option, most] = limit;
    let allow = "run_process";
    kitchen.ok(["run", "-d", "--name", "Boss", "--allow", allow, option, most, "Go"]);
}

#[test]
fn a_run_spends_no_more_than_its_budget_with_what_it_leaves_behind() {
    let kitchen = Kitchen::new();
    kitchen.script(&leaving());
    start(&kitchen, ["--budget", "40k"]);
    for cook in ["Boss", "One", "Two"] {
        kitchen.run(["wait", cook]);
    }
    let used = |task: &str| kitchen.json(["show", task])["usage"]["tokens"].as_u64().unwrap();
    assert_eq!(kitchen.state_of("Boss"), "succeeded");
    for cook in ["One", "Two"] {
        let shown = kitchen.json(["show", cook]);
        assert_eq!(shown["state"], "failed", "{shown}");
        assert!(shown["detail"].as_str().unwrap().contains("tokens"), "{shown}");
    }
    assert!((36_000..=40_000).contains(&used("Boss")), "{}", used("Boss"));
    assert_eq!(used("Boss"), 8_000 + used("One") + used("Two"));
    let shown = kitchen.ok(["show", "One"]);
    let expect = "of agent:1, which kept it and has ended; used: ";
    assert!(shown.contains("40k tokens") && shown.contains(expect), "{shown}");
    // A budget of its own does not free it from the one that it came from.
    kitchen.ok(["resume", "One", "--budget", "100k"]);
    assert_eq!(kitchen.run(["wait", "One"]).code, 122);
    assert!(used("Boss") <= 40_000, "{}", used("Boss"));
}

#[test]
fn a_budget_holds_for_what_was_left_behind_after_the_daemon_was_killed() {
    let kitchen = Kitchen::new();
    kitchen.script(&leaving().replace("echo 0", "until [ -e go ]; do sleep 0.02; done"));
    start(&kitchen, ["--budget", "40k"]);
    kitchen.run(["wait", "Boss"]);
    poll("both cook", || {
        let all = kitchen.json(["ps"]);
        let waiting = all.as_array().unwrap().iter().filter(|task| task["state"] == "waiting");
        (waiting.count() == 2).then_some(())
    });
    kitchen.kill_daemon();
    kitchen.ok(["ps"]);
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    for cook in ["One", "Two"] {
        assert_eq!(kitchen.run(["wait", cook]).code, 122);
    }
    let used = kitchen.json(["show", "Boss"])["usage"]["tokens"].as_u64().unwrap();
    assert!((36_000..=40_000).contains(&used), "{used}");
}

#[test]
fn a_deadline_holds_for_agents_that_are_left_behind_and_not_for_commands() {
    let kitchen = Kitchen::new();
    kitchen.script(
        r#"
agent Boss
turn
  call spawn_agent {"name": "Cook", "task": "Cook.", "keep": true}
  call run_process {"name": "Server", "command": "sleep 600", "background": true, "keep": true}
turn
  say Done.

agent *
turn
  fault hang always
  say Never.
"#,
    );
    start(&kitchen, ["--deadline", "4s"]);
    assert_eq!(kitchen.run(["wait", "Boss"]).code, 0);
    let shown = kitchen.ok(["show", "Cook"]);
    assert!(shown.contains("deadline   in ") && shown.contains(": the 4s of task 1"), "{shown}");
    kitchen.kill_daemon();
    let ran = kitchen.run(["wait", "Cook"]);
    let shown = kitchen.json(["show", "Cook"]);
    assert_eq!((ran.code, &shown["state"]), (124, &"failed".into()), "{shown}");
    assert_eq!(kitchen.state_of("Server"), "running");
    kitchen.ok(["stop", "--wait", "Server"]);
}

#[test]
fn rules_say_what_may_outlive_an_agent() {
    let kitchen = Kitchen::new();
    kitchen.script(
        r#"
agent Boss
turn
  call spawn_agent {"name": "Cook", "task": "Cook.", "keep": true}
turn
  when is not permitted
  say Not kept.
turn
  say Kept.

agent *
turn
  say Cooked.
"#,
    );
    let run = |more: &[&str]| {
        let args = ["run", "--name", "Boss"].iter().chain(more).chain(&["Go"]);
        Ran::from(kitchen.command(args).output().unwrap()).out
    };
    assert_eq!(run(&["--unattended"]), "Not kept.\n");
    assert_eq!(run(&["--unattended", "--allow", "keep(spawn_agent)"]), "Kept.\n");
    assert_eq!(
        run(&["--unattended", "--allow", "keep", "--deny", "keep(spawn_agent)"]),
        "Not kept.\n"
    );
    let ran = kitchen.run(["run", "--deny", "keep(spawn)", "Go"]);
    assert!(ran.err.contains("`keep(spawn)` can never match"), "{ran:?}");
}

#[test]
fn what_may_be_started_is_bounded_by_options() {
    let kitchen = Kitchen::new();
    let limits = ["--max-depth=1", "--max-width=2", "--max-total=3", "--max-running=1"];
    let exec = ["exec", "-d", "--name", "Chef"].into_iter().chain(limits);
    let script = "until [ -e go ]; do sleep 0.02; done";
    let ran: Ran = kitchen.command(exec.chain(["--shell", script])).output().unwrap().into();
    assert_eq!(ran.code, 0, "{ran:?}");
    let held = kitchen.json(["show", "Chef"])["limits"].clone();
    let expected = serde_json::json!({"depth": 1, "width": 2, "total": 3, "running": 1});
    assert_eq!(held, expected);
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    kitchen.ok(["wait", "Chef"]);

    let brigade = BRIGADE;
    let nested = format!("{brigade} exec -d -- true && {brigade} exec -d -- true; echo $?");
    let ran = kitchen.run(["exec", "--max-total", "1", "--shell", &nested]);
    assert!(ran.out.ends_with("120\n"), "the second one is refused: {ran:?}");
    assert!(ran.err.contains("total"), "{ran:?}");

    kitchen.script("agent *\nturn\n  say Done.\n");
    kitchen.ok(["daemon", "stop"]);
    let run = ["run", "-d", "--name", "Agent"].into_iter().chain(limits).chain(["Go"]);
    let ran: Ran = kitchen.command(run).output().unwrap().into();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(kitchen.json(["show", "Agent"])["limits"], expected);
}
