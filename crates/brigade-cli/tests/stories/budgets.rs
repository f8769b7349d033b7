//! Budgets, limits and stalls: options and output.

use std::process::Command;

use crate::story_env::{BRIGADE, Ran, StoryEnv, poll};

const GUIDE: &str = include_str!("../../../../docs/budgets.md");

/// An agent that stops responding after its first step.
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
fn a_silent_agent_is_nudged_and_ends_as_stalled_with_its_last_text() {
    let story = StoryEnv::new();
    story.script(HANGING);
    story.ok(["run", "-d", "--stall", "2s", "--name", "Cook", "Cook"]);
    let shown = poll("it is nudged", || {
        let shown = story.ok(["show", "Cook"]);
        shown.contains("nudged 1 time").then_some(shown)
    });
    assert!(shown.contains("alive      yes, "), "{shown}");
    assert!(shown.contains("2s of silence"), "{shown}");
    let ran = story.run(["wait", "Cook"]);
    assert_eq!(ran.code, 120, "{ran:?}");
    let shown = story.json(["show", "Cook"]);
    assert!(shown["detail"].as_str().unwrap().contains("stalled: nothing happened for"), "{shown}");
    assert_eq!(shown["result"], "So far, so good.");
    let transcript = story.ok(["show", "Cook"]);
    assert!(transcript.contains("<note from=\"brigade\""), "{transcript}");
}

#[test]
fn a_busy_agent_is_alive_and_active() {
    let story = StoryEnv::new();
    story.script(
        "agent *\nturn\n  pace 100ms\n  say Words and words. \n  delay 60s\n  say Never.\n",
    );
    story.ok(["run", "-d", "--stall", "off", "--max-spawns", "5/min", "Cook"]);
    story.until_state("1", "running");
    let shown = story.ok(["show", "1"]);
    assert!(shown.contains("alive      yes, last activity"), "{shown}");
    assert!(shown.contains("5/min started, any silence"), "{shown}");
    let listed = story.ok(["ps"]);
    assert!(listed.starts_with("TASK     NAME  STATE    AGE"), "{listed}");
    assert!(listed.lines().next().unwrap().contains("ACTIVE"), "{listed}");
}

#[test]
fn an_agent_that_spawns_too_fast_gets_an_error_and_continues() {
    let story = StoryEnv::new();
    story.script(
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
    let ran = story.run(["run", "--name", "Boss", "--max-spawns", "1/h", "Go"]);
    assert_eq!((ran.code, &*ran.out), (0, "One is enough.\n"), "{}", ran.err);
    assert_eq!(story.json(["ps", "--ended"]).as_array().unwrap().len(), 2);
}

#[test]
fn a_budget_is_announced_and_a_larger_one_resumes_the_agent() {
    let story = StoryEnv::new();
    story.script(
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
    let ran = story.run(["run", "--budget", "8k", "--name", "Cook", "Cook"]);
    assert_eq!((ran.code, &*ran.out), (122, "Half.\n"), "{}", ran.err);
    story.ok(["resume", "Cook", "--budget", "100k", "--max-spawns", "3/h"]);
    assert_eq!(story.ok(["wait", "Cook"]), "agent:1 (Cook) succeeded\n");
    let shown = story.json(["show", "Cook"]);
    assert_eq!(shown["result"], "All of it.");
    assert_eq!(shown["limits"]["tokens"], 100_000);
    assert_eq!(shown["limits"]["depth"], 8, "other limits stay: {shown}");
}

#[test]
fn a_missing_delegate_is_reported_with_file_line_and_field() {
    let story = StoryEnv::new();
    story.script("agent *\nturn\n  say Done.\n");
    let cook =
        "---\nname: cook\ndescription: Cooks.\nmay_delegate_to: [general, waitr]\n---\nCook.";
    story.define("cook", cook);
    let waiter = "---\nname: waiter\ndescription: Waits.\nmay_delegate_to: [cook]\n---\nWait.";
    story.define("waiter", waiter);
    story.trust();
    let expect =
        "cook.md:4: `may_delegate_to`: `waitr` is no agent definition; did you mean `waiter`?";
    let ran = story.run(["run", "--agent", "cook", "Cook"]);
    assert!(ran.code != 0 && ran.err.contains(expect), "{ran:?}");
    let listed = story.run(["agents"]);
    assert!(listed.code == 0 && listed.err.contains(expect), "{listed:?}");
    assert_eq!(story.json(["ps", "--ended"]), serde_json::json!([]), "nothing was started");
}

/// Runs all commands of the guide in order.
#[test]
fn the_commands_of_the_guide_run() {
    let story = StoryEnv::new();
    story.script("agent *\nturn\n  say Done.\n");
    story.define("reviewer", guide("markdown").next().unwrap());
    let directory = std::path::Path::new(BRIGADE).parent().unwrap();
    let path = format!("{}:/usr/bin:/bin", directory.display());
    let mut count = 0;
    for line in guide("sh").flat_map(str::lines) {
        if line.starts_with("brigade resume") {
            story.run(["wait", "1"]);
        }
        let mut shell = Command::new("/bin/sh");
        story.hermetic(shell.args(["-c", line]));
        let ran = Ran::from(shell.env("PATH", &path).output().unwrap());
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
        count += 1;
    }
    assert_eq!(count, 6);
    let listed = story.run(["agents"]);
    assert!(listed.out.contains("reviewer") && listed.err.is_empty(), "{listed:?}");
}

/// Returns the examples of the guide in one language.
fn guide(language: &str) -> impl Iterator<Item = &'static str> {
    let fence = format!("```{language}\n");
    let blocks: Vec<&str> = GUIDE.split(fence.as_str()).skip(1).collect();
    blocks.into_iter().filter_map(|block| block.split("```").next())
}

/// Returns a script of an agent that spends 4,000 tokens in each of many different steps.
fn spender() -> String {
    let step = |step| format!("turn\n  call run_process {{\"command\": \"echo {step}\"}}\n");
    let steps: String = (0..20).map(step).collect();
    format!("agent *\nusage input=100 output=3900\n{steps}turn\n  say All of it.\n")
}

/// Returns a script of a boss that keeps two such agents and ends.
fn keeping() -> String {
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

fn start(story: &StoryEnv, limit: [&str; 2]) {
    let [option, value] = limit;
    let allow = "run_process";
    story.ok(["run", "-d", "--name", "Boss", "--allow", allow, option, value, "Go"]);
}

#[test]
fn a_budget_includes_kept_tasks() {
    let story = StoryEnv::new();
    story.script(&keeping());
    start(&story, ["--budget", "40k"]);
    for cook in ["Boss", "One", "Two"] {
        story.run(["wait", cook]);
    }
    let used = |task: &str| story.json(["show", task])["usage"]["tokens"].as_u64().unwrap();
    assert_eq!(story.state_of("Boss"), "succeeded");
    for cook in ["One", "Two"] {
        let shown = story.json(["show", cook]);
        assert_eq!(shown["state"], "failed", "{shown}");
        assert!(shown["detail"].as_str().unwrap().contains("tokens"), "{shown}");
    }
    assert!((36_000..=40_000).contains(&used("Boss")), "{}", used("Boss"));
    assert_eq!(used("Boss"), 8_000 + used("One") + used("Two"));
    let shown = story.ok(["show", "One"]);
    let expect = "of agent:1, which kept it and has ended; used: ";
    assert!(shown.contains("40k tokens") && shown.contains(expect), "{shown}");
    // Its own budget does not replace the inherited one.
    story.ok(["resume", "One", "--budget", "100k"]);
    assert_eq!(story.run(["wait", "One"]).code, 122);
    assert!(used("Boss") <= 40_000, "{}", used("Boss"));
}

#[test]
fn a_budget_includes_kept_tasks_after_the_daemon_was_killed() {
    let story = StoryEnv::new();
    story.script(&keeping().replace("echo 0", "until [ -e go ]; do sleep 0.02; done"));
    start(&story, ["--budget", "40k"]);
    story.run(["wait", "Boss"]);
    poll("both cook", || {
        let all = story.json(["ps"]);
        let waiting = all.as_array().unwrap().iter().filter(|task| task["state"] == "waiting");
        (waiting.count() == 2).then_some(())
    });
    story.kill_daemon();
    story.ok(["ps"]);
    std::fs::write(story.project().join("go"), "").unwrap();
    for cook in ["One", "Two"] {
        assert_eq!(story.run(["wait", cook]).code, 122);
    }
    let used = story.json(["show", "Boss"])["usage"]["tokens"].as_u64().unwrap();
    assert!((36_000..=40_000).contains(&used), "{used}");
}

#[test]
fn a_deadline_applies_to_kept_agents_and_not_to_kept_processes() {
    let story = StoryEnv::new();
    story.script(
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
    start(&story, ["--deadline", "4s"]);
    assert_eq!(story.run(["wait", "Boss"]).code, 0);
    let shown = story.ok(["show", "Cook"]);
    assert!(shown.contains("deadline   in ") && shown.contains(": the 4s of task 1"), "{shown}");
    story.kill_daemon();
    let ran = story.run(["wait", "Cook"]);
    let shown = story.json(["show", "Cook"]);
    assert_eq!((ran.code, &shown["state"]), (124, &"failed".into()), "{shown}");
    assert_eq!(story.state_of("Server"), "running");
    story.ok(["stop", "--wait", "Server"]);
}

#[test]
fn rules_decide_which_tasks_outlive_an_agent() {
    let story = StoryEnv::new();
    story.script(
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
    let run = |options: &[&str]| {
        let args = ["run", "--name", "Boss"].iter().chain(options).chain(&["Go"]);
        Ran::from(story.command(args).output().unwrap()).out
    };
    assert_eq!(run(&["--unattended"]), "Not kept.\n");
    assert_eq!(run(&["--unattended", "--allow", "keep(spawn_agent)"]), "Kept.\n");
    assert_eq!(
        run(&["--unattended", "--allow", "keep", "--deny", "keep(spawn_agent)"]),
        "Not kept.\n"
    );
    let ran = story.run(["run", "--deny", "keep(spawn)", "Go"]);
    assert!(ran.err.contains("`keep(spawn)` can never match"), "{ran:?}");
}

#[test]
fn options_limit_the_descendants() {
    let story = StoryEnv::new();
    let limits = ["--max-depth=1", "--max-width=2", "--max-total=3", "--max-running=1"];
    let exec = ["exec", "-d", "--name", "Chef"].into_iter().chain(limits);
    let script = "until [ -e go ]; do sleep 0.02; done";
    let ran: Ran = story.command(exec.chain(["--shell", script])).output().unwrap().into();
    assert_eq!(ran.code, 0, "{ran:?}");
    let limits_shown = story.json(["show", "Chef"])["limits"].clone();
    let expected = serde_json::json!({"depth": 1, "width": 2, "total": 3, "running": 1});
    assert_eq!(limits_shown, expected);
    std::fs::write(story.project().join("go"), "").unwrap();
    story.ok(["wait", "Chef"]);

    let brigade = BRIGADE;
    let nested = format!("{brigade} exec -d -- true && {brigade} exec -d -- true; echo $?");
    let ran = story.run(["exec", "--max-total", "1", "--shell", &nested]);
    assert!(ran.out.ends_with("120\n"), "the second one is refused: {ran:?}");
    assert!(ran.err.contains("total"), "{ran:?}");

    story.script("agent *\nturn\n  say Done.\n");
    story.ok(["daemon", "stop"]);
    let run = ["run", "-d", "--name", "Agent"].into_iter().chain(limits).chain(["Go"]);
    let ran: Ran = story.command(run).output().unwrap().into();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(story.json(["show", "Agent"])["limits"], expected);
}
