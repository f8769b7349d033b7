//! Agents with the tools of MCP servers. The server is Brigade itself, with another state
//! directory.

use crate::story_env::{BRIGADE, StoryEnv, is_there, poll};

/// Runs a process through the MCP server.
const GUEST: &str = r#"
agent *
turn
  call pantry__run_process {"command": "echo three leeks"}
turn
  when three leeks
  say There are leeks.
turn
  when there is no tool
  say There is no pantry.
"#;

/// An environment with two MCP servers: one with another state directory, and one that does not
/// exist.
struct WithPantry(StoryEnv);

impl std::ops::Deref for WithPantry {
    type Target = StoryEnv;

    fn deref(&self) -> &StoryEnv {
        &self.0
    }
}

/// Nobody else stops the other daemon.
impl Drop for WithPantry {
    fn drop(&mut self) {
        self.run(["daemon", "stop"]);
        self.run(["--state", &pantry(self), "daemon", "stop"]);
    }
}

fn with_pantry(script: &str) -> WithPantry {
    let story = StoryEnv::new();
    story.script(script);
    let file = story.home().join(".config/brigade/config.toml");
    let model = std::fs::read_to_string(file).unwrap();
    let state = pantry(&story);
    let servers = format!(
        "[mcp_servers.pantry]\ncommand = [{BRIGADE:?}, \"--state\", {state:?}, \"mcp\"]\n\
         [mcp_servers.nowhere]\ncommand = [\"/nowhere/server\"]\n"
    );
    story.configure(&format!("{model}\n{servers}"));
    WithPantry(story)
}

fn pantry(story: &StoryEnv) -> String {
    story.directory("pantry").to_str().unwrap().to_owned()
}

#[test]
fn an_agent_uses_a_permitted_server() {
    let story = with_pantry(GUEST);
    let ran = story.run(["run", "--mcp", "pantry", "Look"]);
    assert_eq!((ran.code, &*ran.out), (0, "There are leeks.\n"), "{}", ran.err);
    let ran = story.run(["run", "Look"]);
    assert_eq!((ran.code, &*ran.out), (0, "There is no pantry.\n"), "{}", ran.err);
    let ran = story.run(["run", "--mcp", "pantry", "--deny", "pantry__run_*", "Look"]);
    assert_eq!((ran.code, &*ran.out), (0, "There is no pantry.\n"), "{}", ran.err);
}

#[test]
fn a_server_of_a_definition_needs_permission() {
    let story = with_pantry(GUEST);
    let front = "name: guest\ndescription: Looks.\nmcp_servers: [pantry]";
    story.define("guest", &format!("---\n{front}\n---\nLook into the pantry.\n"));
    story.trust();
    let ran = story.run(["run", "--agent", "guest", "Look"]);
    assert_eq!((ran.code, &*ran.out), (0, "There is no pantry.\n"), "{}", ran.err);
    assert!(ran.err.contains("--mcp pantry lets it"), "{}", ran.err);
    let ran = story.run(["run", "--agent", "guest", "--allow", "pantry__*", "Look"]);
    assert_eq!((ran.code, &*ran.out), (0, "There are leeks.\n"), "{}", ran.err);
    assert!(!ran.err.contains("lets it"), "{}", ran.err);
}

#[test]
fn doctor_reports_unreachable_servers() {
    let story = with_pantry(GUEST);
    let ran = story.run(["doctor"]);
    let line = |part: &str| ran.out.lines().find(|line| line.contains(part)).unwrap_or_default();
    let healthy = line("pantry: ");
    let degraded = line("nowhere cannot be reached");
    assert!(healthy.starts_with("healthy") && healthy.contains("tools"), "{}", ran.out);
    assert!(
        degraded.starts_with("degraded") && degraded.contains("/nowhere/server"),
        "{}",
        ran.out
    );
}

#[test]
fn an_unknown_server_is_refused() {
    let story = with_pantry(GUEST);
    let ran = story.run(["run", "--mcp", "pantri", "Look"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("\"pantri\"") && ran.err.contains("nowhere, pantry"), "{}", ran.err);
}

#[test]
fn rules_for_an_unknown_server_are_refused() {
    let story = with_pantry(GUEST);
    for option in ["--allow", "--ask", "--deny"] {
        let ran = story.run(["run", "--mcp", "pantry", option, "pantri__run_process", "Look"]);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(
            ran.err.contains("no MCP server \"pantri\"; did you mean `pantry`?"),
            "{}",
            ran.err
        );
    }
    let ran = story.run(["run", "--allow", "pantry__*", "Look"]);
    assert_eq!((ran.code, &*ran.out), (0, "There is no pantry.\n"), "{}", ran.err);
    assert!(ran.err.contains("--allow 'pantry__*' gives general nothing"), "{}", ran.err);
}

#[test]
fn a_server_configured_after_the_daemon_start_is_reported_with_a_hint() {
    let story = StoryEnv::new();
    story.script(GUEST);
    story.ok(["ps"]);
    let file = story.home().join(".config/brigade/config.toml");
    let model = std::fs::read_to_string(file).unwrap();
    story.configure(&format!("{model}\n[mcp_servers.pantry]\ncommand = [\"/nowhere/server\"]\n"));
    for option in ["--mcp=pantry", "--deny=pantry__*"] {
        let ran = story.run(["run", option, "Look"]);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(
            ran.err.contains("`brigade daemon stop`, and the next daemon has it"),
            "{}",
            ran.err
        );
    }
    story.ok(["daemon", "stop"]);
}

#[test]
fn an_ambiguous_server_name_is_refused() {
    let story = StoryEnv::new();
    story.configure("[mcp_servers.a__b]\ncommand = [\"x\"]\n");
    let ran = story.run(["config"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("\"a__b\""), "{}", ran.err);
}

#[test]
fn the_next_daemon_ends_servers_of_a_killed_one() {
    let story = StoryEnv::new();
    story.script("agent *\nturn\n  say Never.\n");
    let file = story.home().join(".config/brigade/config.toml");
    let model = std::fs::read_to_string(file).unwrap();
    // It neither replies nor ends with its input.
    let command = "echo $$ >> servers; exec sleep 1000";
    let project = story.project();
    story.configure(&format!(
        "{model}\n[mcp_servers.deaf]\ncommand = [\"/bin/sh\", \"-c\", {command:?}]\ncwd = {project:?}\n"
    ));
    story.ok(["run", "-d", "--mcp", "deaf", "Look"]);
    let first: u32 = story.file("servers").trim().parse().unwrap();
    story.kill_daemon();
    assert!(is_there(first), "nobody has stopped it");
    story.ok(["ps"]);
    poll("it is ended", || (!is_there(first)).then_some(()));
    story.ok(["daemon", "stop"]);
    let servers = std::fs::read_dir(story.state().join("servers")).unwrap().count();
    assert_eq!(servers, 0, "the servers of the next daemon ended with it");
}
