//! Trees of Brigade's own agents, agents of other vendors and processes.

use std::process::Command;

use serde_json::Value;

use crate::agent_programs::{FAKES, ProgramStory};
use crate::story_env::{is_there, poll};

const BAKER: &str = "---
name: baker
description: Bakes over ACP.
runs: { acp: [\"{fakes}/acp-agent\", \"{home}\"] }
---
Bake.
";

/// A root of our own with an adapter's agent, an ACP agent and a process, each in its worktree.
const TREE: &str = r#"agent Chef
turn
  call spawn_agent {"agent": "claude", "task": "{task}", "name": "Cook", "worktree": true}
  call spawn_agent {"agent": "baker", "task": "{task}", "name": "Baker", "worktree": true}
  call run_process {"command": "{command}", "background": true, "name": "Timer", "worktree": true}
turn
  call wait_tasks {"mode": "all"}
turn
  say All is served.
"#;

fn open(task: &str, command: &str, options: &[&str]) -> ProgramStory {
    let story = ProgramStory::with_fakes();
    let project = story.story.project();
    let home = story.story.directory("acp");
    let baker = BAKER.replace("{fakes}", FAKES).replace("{home}", home.to_str().unwrap());
    story.story.define("baker", &baker);
    story.story.script(&TREE.replace("{task}", task).replace("{command}", command));
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(&project).env("HOME", story.story.home()).args(words);
        assert!(git.output().unwrap().status.success(), "git {words:?}");
    };
    git(&["init", "-q"]);
    let author = ["-c", "user.name=cook", "-c", "user.email=cook@localhost"];
    git(&[&author[..], &["commit", "-q", "--allow-empty", "-m", "begin"]].concat());
    story.ok(["daemon", "start"]);
    story.story.trust();
    let start = ["run", "-d", "--name", "Chef", "--allow=run_process"];
    story.ok([&start, options, &["serve"]].concat());
    story
}

fn children(story: &ProgramStory) -> Vec<Value> {
    ["Cook", "Baker", "Timer"].map(|name| story.story.json(["show", name])).to_vec()
}

#[test]
fn each_child_has_its_worktree_and_the_root_counts_the_cost_of_all() {
    let story = open("begin", "true", &[]);
    let waited = story.run(["wait", "Chef"]);
    assert_eq!(waited.code, 0, "{waited:?}");
    let chef = story.story.json(["show", "Chef"]);
    assert_eq!(chef["result"], "All is served.");
    assert_eq!(chef["usage"]["money"], 2_000, "a thousandth of a dollar each: {chef}");
    let mut branches = Vec::new();
    for child in children(&story) {
        assert_eq!(child["state"], "succeeded", "{child}");
        branches.push(child["worktree"]["branch"].as_str().unwrap().to_owned());
    }
    branches.dedup();
    assert_eq!(branches.len(), 3, "{branches:?}");
}

#[test]
fn a_budget_of_the_root_ends_an_agent_of_another_vendor_in_its_turn() {
    let story = open("spend for ever", "true", &["--budget", "50k"]);
    let waited = story.run(["wait", "Chef"]);
    assert_eq!(waited.code, 122, "{waited:?}");
    let chef = story.story.json(["show", "Chef"]);
    let used = chef["usage"]["tokens"].as_u64().unwrap();
    assert!((50_000..60_000).contains(&used), "{chef}");
    // The agent in its turn or the root ends by the budget. The other one is stopped with it.
    let cook = story.story.json(["show", "Cook"]);
    assert_eq!((&cook["alive"], &cook["result"]), (&Value::Bool(false), &Value::Null), "{cook}");
}

#[test]
fn a_stop_of_the_root_reaches_all() {
    let story = open("hang", "sleep 1000", &[]);
    let is_running = |child: &Value| child["state"] == "running";
    poll("all run", || {
        let names = ["Cook", "Baker", "Timer"];
        let found = names.map(|name| story.run(["show", name, "--json"]));
        let found = found.map(|ran| serde_json::from_str::<Value>(&ran.out).unwrap_or_default());
        let has_started = story.story.directory("acp").join("starts").exists();
        (has_started && found.iter().all(is_running)).then_some(())
    });
    let before = story.story.processes();
    story.ok(["stop", "--wait", "Chef"]);
    for child in children(&story) {
        assert_eq!(child["state"], "cancelled", "{child}");
    }
    let daemon = story.story.daemon_pid();
    poll("nothing is left", || {
        before.iter().all(|pid| *pid == daemon || !is_there(*pid)).then_some(())
    });
}
