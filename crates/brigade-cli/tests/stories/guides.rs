//! Runs the commands of the guides and compares their output.
//!
//! A guide has one ```` ```script ```` block, the model of its agents, and ```` ```console ````
//! blocks: a line `$ command`, then its output up to the next one. `[..]` matches any text within a
//! line.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::story_env::{BRIGADE, StoryEnv, poll};

/// Stand-ins for agent programs of other vendors.
const AGENT_FAKES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../brigade-external/tests/fakes");

#[test]
fn the_guide_to_ci_is_correct() {
    follow("headless.md");
}

#[test]
fn the_guide_to_crashes_is_correct() {
    follow("resume.md");
}

#[test]
fn the_guide_to_worktrees_is_correct() {
    follow("worktrees.md");
}

#[test]
fn the_guide_to_testing_is_correct() {
    follow("testing.md");
}

#[test]
fn the_guide_to_copies_is_correct() {
    follow("store-copy.md");
}

/// This guide shows commands without their output.
#[test]
fn the_commands_of_the_guide_to_agents_run() {
    let guide = read("agents.md");
    let story = StoryEnv::new();
    story.script("agent *\nturn\n  say Done.\n");
    story.define(
        "reviewer",
        "---\nname: reviewer\ndescription: Reviews.\n---\nYou are a careful reviewer.\n",
    );
    run(&story, "git init --quiet && touch soup && git add soup && echo salt > soup");
    let with_programs = format!("export PATH=\"{AGENT_FAKES}:$PATH\"");
    run(&story, &format!("{with_programs}; brigade daemon start"));
    story.trust();
    let commands: Vec<&str> = blocks(&guide, "sh")
        .map(|(_, line)| line)
        .filter(|line| line.contains("brigade ") && !line.contains("cargo run"))
        .collect();
    assert_eq!(commands.len(), 8, "{commands:?}");
    for command in commands {
        let printed = run(&story, &format!("{command} || echo \"exit code $?\""));
        assert!(!printed.contains("exit code"), "{command}\nprints\n{printed}");
        let expect = if command.starts_with("brigade agents") { "2.1.325" } else { "succeeded" };
        assert!(printed.contains(expect), "{command}\nprints\n{printed}");
    }
}

/// The programs of this guide are stand-ins.
#[test]
fn the_commands_of_the_guide_to_other_agents_run() {
    let guide = read("other-agents.md");
    let story = StoryEnv::new();
    let definition: Vec<&str> = blocks(&guide, "markdown").map(|(_, line)| line).collect();
    story.define("fixer", &definition.join("\n"));
    run(&story, &format!("export PATH=\"{AGENT_FAKES}:$PATH\"; brigade daemon start"));
    run(&story, "git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m 1");
    story.trust();
    let commands: Vec<&str> = blocks(&guide, "sh").map(|(_, line)| line).collect();
    let expected = ["2.1.325", "succeeded", "succeeded", "succeeded"];
    assert_eq!(commands.len(), expected.len(), "{commands:?}");
    for (command, expect) in commands.into_iter().zip(expected) {
        let printed = run(&story, command);
        assert!(printed.contains(expect), "{command}\nprints\n{printed}");
    }
}

/// Each command of the guide decides the next pending approval.
#[test]
fn the_commands_of_the_guide_to_permissions_run() {
    let guide = read("permissions.md");
    let story = StoryEnv::new();
    story.script(
        "agent First\nturn\n  say Hello.\nagent *\nturn\n  call run_process {\"command\": \"true\"}\n\
         turn\n  call run_process {\"command\": \"echo one\"}\n  call run_process {\"command\": \"echo two\"}\n\
         turn\n  call run_process {\"command\": \"cargo --version\"}\nturn\n  call run_process \
         {\"command\": \"git push\"}\nturn\n  say Done.\n",
    );
    story.ok(["run", "--name", "First", "Go"]);
    story.ok(["run", "-d", "--ask", "run_process", "Go"]);
    let pending_calls = |count| {
        poll("pending approvals", || {
            let pending = story.json(["approve", "--list"])["pending"].as_array().unwrap().clone();
            (pending.len() == count).then_some(pending)
        })
    };
    let mut counts = [1, 1, 1, 2, 1, 1, 1, 0].into_iter();
    for (_, command) in blocks(&guide, "sh") {
        let pending = pending_calls(counts.next().unwrap());
        let is_named =
            |one: &&serde_json::Value| command.contains(&format!("agent:2 {} ", one["call"]));
        let call = pending.iter().find(is_named).or(pending.first());
        let digest = call.and_then(|one| one["digest"].as_str()).unwrap_or_default();
        let command = command.replace("DIGEST", digest);
        let printed = run(&story, &format!("{command}\necho exit code $?"));
        assert!(printed.contains("exit code 0\n"), "{command}\nprints\n{printed}");
    }
    assert_eq!(counts.next(), None);
}

fn read(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    fs::read_to_string(docs.join(name)).unwrap()
}

/// A command of a guide, with its expected output.
struct Shown<'a> {
    line: usize,
    command: &'a str,
    prints: Vec<&'a str>,
}

#[track_caller]
fn follow(name: &str) {
    let guide = read(name);
    let story = StoryEnv::new();
    let script: Vec<&str> = blocks(&guide, "script").map(|(_, line)| line).collect();
    story.script(&script.join("\n"));
    let shown = shown(&guide);
    assert!(!shown.is_empty(), "{name} shows no command");
    for one in shown {
        let printed = run(&story, one.command);
        let lines: Vec<&str> = printed.lines().collect();
        let fits = lines.len() == one.prints.len()
            && lines.iter().zip(&one.prints).all(|(line, pattern)| fits(line, pattern));
        assert!(fits, "docs/{name}:{}: {}\nprints\n{printed}", one.line, one.command);
    }
}

fn run(story: &StoryEnv, command: &str) -> String {
    let directory = Path::new(BRIGADE).parent().unwrap();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]);
    story.hermetic(&mut shell);
    shell.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", directory.display()));
    let output = shell.stderr(Stdio::piped()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).unwrap()
}

fn shown(guide: &str) -> Vec<Shown<'_>> {
    let mut all: Vec<Shown<'_>> = Vec::new();
    for (line, text) in blocks(guide, "console") {
        match (text.strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => all.push(Shown { line, command, prints: Vec::new() }),
            (None, Some(last)) => last.prints.push(text),
            (None, None) => panic!("line {line} comes before any command"),
        }
    }
    all
}

/// Returns the lines of all blocks of a language, with their numbers.
fn blocks<'a>(guide: &'a str, language: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let mut within = None;
    guide.lines().enumerate().filter_map(move |(at, line)| {
        match (line.strip_prefix("```"), within) {
            (Some(_), Some(_)) => within = None,
            (Some(opened), None) => within = Some(opened),
            (None, Some(opened)) if opened == language => return Some((at + 1, line)),
            (None, _) => {}
        }
        None
    })
}

fn fits(line: &str, pattern: &str) -> bool {
    match pattern.split_once("[..]") {
        Some((before, after)) => {
            line.len() >= before.len() + after.len()
                && line.starts_with(before)
                && line.ends_with(after)
        }
        None => line == pattern,
    }
}
