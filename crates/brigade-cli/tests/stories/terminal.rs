//! Output with and without a terminal.

use std::process::Command;

use crate::story_env::{BRIGADE, StoryEnv};

/// Runs a subcommand on a terminal of this width, and returns its output.
fn run_on_terminal(story: &StoryEnv, columns: u16, variables: &str, args: &str) -> String {
    let mut script = Command::new("script");
    story.hermetic(&mut script);
    let line = format!("stty cols {columns} rows 20; {variables} {BRIGADE} {args}");
    let shown = script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").output().unwrap();
    String::from_utf8(shown.stdout).unwrap().replace("\r\n", "\n")
}

#[test]
fn colours_are_for_terminals_only() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--", "sleep", "60"]);
    assert!(run_on_terminal(&story, 80, "", "ps").contains("\u{1b}[36mrunning"));
    assert!(!run_on_terminal(&story, 80, "NO_COLOR=1", "ps").contains('\u{1b}'));
    assert!(!story.ok(["ps"]).contains('\u{1b}'));
}

#[test]
fn a_stop_at_a_terminal_is_an_event_by_that_terminal() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--", "sleep", "60"]);
    let mut script = Command::new("script");
    story.hermetic(&mut script);
    let line = format!("tty; {BRIGADE} stop --wait 1");
    let shown = script.args(["-qec", &line, "/dev/null"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let terminal = shown.lines().next().unwrap().trim().trim_start_matches("/dev/").to_owned();
    assert!(terminal.starts_with("pts/"), "{shown}");

    let author = format!("operator, terminal {terminal}");
    let events = story.ok(["events"]);
    let by = |name: &str| -> Vec<&str> {
        let lines = events.lines().filter(|line| line.contains(name));
        lines.map(|line| line.split_once(" · by ").map_or("", |(_, by)| by)).collect()
    };
    assert_eq!(by("stop requested"), [author.as_str()], "{events}");
    assert_eq!(by("ended"), [""], "{events}");
    assert!(by("spawned")[0].starts_with("operator, "), "{events}");
    let json = story.ok(["events", "--json"]);
    let events = json.lines().map(|line| serde_json::from_str(line).unwrap());
    let events: Vec<serde_json::Value> = events.collect();
    let stop = events.iter().find(|item| item["event"]["event"].get("stop_requested").is_some());
    let origin = format!("terminal {terminal}");
    let expect = serde_json::json!({ "kind": "operator", "origin": origin });
    assert_eq!(stop.unwrap()["event"]["by"], expect);
}

#[test]
fn a_task_names_its_author() {
    let story = StoryEnv::new();
    for _ in 0..2 {
        story.ok(["exec", "--", "true"]);
    }
    let events = story.ok(["events"]);
    let spawned = events.lines().filter(|line| line.contains("spawned")).nth(1).unwrap();
    let author = spawned.split_once(" · by ").unwrap().1;
    let shown = story.ok(["show", "2"]);
    let started = shown.lines().find(|line| line.starts_with("started")).unwrap();
    assert!(started.ends_with(&format!(" ago) · by {author}")), "{started}");
    let shown = story.json(["show", "2"]);
    assert_eq!(shown["by"]["kind"], "operator", "{shown}");
    assert!(author.contains(shown["by"]["origin"].as_str().unwrap()), "{author}");
}

#[test]
fn a_table_fits_a_narrow_terminal() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--", "sleep", "60", "61", "62", "63", "64", "65", "66", "67", "68"]);
    let shown = run_on_terminal(&story, 50, "NO_COLOR=1", "ps --ended");
    assert!(shown.lines().all(|line| line.chars().count() <= 50), "{shown}");
    assert!(shown.contains('…'), "{shown}");
    story.ok(["stop", "--now", "--wait", "1"]);
    story.ok(["exec", "--name", "Somebody with a name", "--", "true"]);
    let shown = run_on_terminal(&story, 40, "NO_COLOR=1", "ps --ended");
    assert!(shown.lines().all(|line| line.chars().count() <= 40), "{shown}");
    assert!(shown.contains("\nprocess:1  -") && shown.contains("\nprocess:2  Someb"), "{shown}");
    story.ok(["exec", "-d", "--shell", "sleep 60 # and more that does not fit into a line"]);
    let shown = run_on_terminal(&story, 50, "NO_COLOR=1", "tree");
    assert!(shown.lines().skip(1).all(|line| line.chars().count() <= 50), "{shown}");
    assert!(shown.contains('…'), "{shown}");
    assert!(story.ok(["ps", "--ended"]).contains("66 67 68"), "whole without a terminal");
}

#[test]
fn ctrl_c_on_a_terminal_stops_the_process() {
    let story = StoryEnv::new();
    story.ok(["daemon", "start"]);
    let mut script = Command::new("script");
    story.hermetic(&mut script);
    let line = format!("{BRIGADE} exec --shell 'echo up > up; sleep 60'; echo code $?");
    script.args(["-qc", &line, "/dev/null"]).stdin(std::process::Stdio::piped());
    let mut terminal = script.stdout(std::process::Stdio::piped()).spawn().unwrap();
    story.file("up");
    std::io::Write::write_all(terminal.stdin.as_mut().unwrap(), b"\x03").unwrap();
    let shown = terminal.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("stopping process:1"), "{shown}");
    assert!(story.run(["wait", "1"]).code == 121, "{shown}");
    assert_eq!(story.run(["daemon", "status"]).code, 0, "the daemon has no terminal");
}
