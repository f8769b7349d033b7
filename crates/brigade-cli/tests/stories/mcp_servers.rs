//! Agents with the tools of MCP servers. The server is Brigade itself, in another state folder.

use crate::kitchen::{BRIGADE, Kitchen, is_there, poll};

/// Has something done by the other kitchen.
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

/// A kitchen whose configuration knows another one, and a server that is not there.
struct WithPantry(Kitchen);

impl std::ops::Deref for WithPantry {
    type Target = Kitchen;

    fn deref(&self) -> &Kitchen {
        &self.0
    }
}

/// The other daemon has nobody else who ends it.
impl Drop for WithPantry {
    fn drop(&mut self) {
        self.run(["daemon", "stop"]);
        self.run(["--state", &pantry(self), "daemon", "stop"]);
    }
}

fn with_pantry(script: &str) -> WithPantry {
    let kitchen = Kitchen::new();
    kitchen.script(script);
    let file = kitchen.home().join(".config/brigade/config.toml");
    let model = std::fs::read_to_string(file).unwrap();
    let state = pantry(&kitchen);
    let servers = format!(
        "[mcp_servers.pantry]\ncommand = [{BRIGADE:?}, \"--state\", {state:?}, \"mcp\"]\n\
         [mcp_servers.nowhere]\ncommand = [\"/nowhere/server\"]\n"
    );
    kitchen.configure(&format!("{model}\n{servers}"));
    WithPantry(kitchen)
}

fn pantry(kitchen: &Kitchen) -> String {
    kitchen.folder("pantry").to_str().unwrap().to_owned()
}

#[test]
fn an_agent_uses_a_server_that_it_was_given() {
    let kitchen = with_pantry(GUEST);
    let ran = kitchen.run(["run", "--mcp", "pantry", "Look"]);
    assert_eq!((ran.code, &*ran.out), (0, "There are leeks.\n"), "{}", ran.err);
    let ran = kitchen.run(["run", "Look"]);
    assert_eq!((ran.code, &*ran.out), (0, "There is no pantry.\n"), "{}", ran.err);
    let ran = kitchen.run(["run", "--mcp", "pantry", "--deny", "pantry__run_*", "Look"]);
    assert_eq!((ran.code, &*ran.out), (0, "There is no pantry.\n"), "{}", ran.err);
}

#[test]
fn what_a_definition_names_is_not_yet_what_it_may_use() {
    let kitchen = with_pantry(GUEST);
    let front = "name: guest\ndescription: Looks.\nmcp_servers: [pantry]";
    kitchen.define("guest", &format!("---\n{front}\n---\nLook into the pantry.\n"));
    kitchen.trust();
    let ran = kitchen.run(["run", "--agent", "guest", "Look"]);
    assert_eq!((ran.code, &*ran.out), (0, "There is no pantry.\n"), "{}", ran.err);
    assert!(ran.err.contains("--mcp pantry lets it"), "{}", ran.err);
    let ran = kitchen.run(["run", "--agent", "guest", "--allow", "pantry__*", "Look"]);
    assert_eq!((ran.code, &*ran.out), (0, "There are leeks.\n"), "{}", ran.err);
    assert!(!ran.err.contains("lets it"), "{}", ran.err);
}

#[test]
fn servers_that_cannot_be_reached_are_told_of() {
    let kitchen = with_pantry(GUEST);
    let ran = kitchen.run(["doctor"]);
    let line = |part: &str| ran.out.lines().find(|line| line.contains(part)).unwrap_or_default();
    let (fine, lacking) = (line("pantry: "), line("nowhere cannot be reached"));
    assert!(fine.starts_with("fine") && fine.contains("tools"), "{}", ran.out);
    assert!(lacking.starts_with("lacking") && lacking.contains("/nowhere/server"), "{}", ran.out);
}

#[test]
fn a_server_that_nobody_configured_is_named() {
    let kitchen = with_pantry(GUEST);
    let ran = kitchen.run(["run", "--mcp", "pantri", "Look"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("\"pantri\"") && ran.err.contains("nowhere, pantry"), "{}", ran.err);
}

#[test]
fn rules_for_a_server_that_is_not_there_are_refused() {
    let kitchen = with_pantry(GUEST);
    for option in ["--allow", "--ask", "--deny"] {
        let ran = kitchen.run(["run", "--mcp", "pantry", option, "pantri__run_process", "Look"]);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(
            ran.err.contains("no MCP server \"pantri\"; did you mean `pantry`?"),
            "{}",
            ran.err
        );
    }
    let ran = kitchen.run(["run", "--allow", "pantry__*", "Look"]);
    assert_eq!((ran.code, &*ran.out), (0, "There is no pantry.\n"), "{}", ran.err);
    assert!(ran.err.contains("--allow 'pantry__*' gives general nothing"), "{}", ran.err);
}

#[test]
fn a_server_that_the_daemon_has_not_heard_of_is_told_with_what_to_do() {
    let kitchen = Kitchen::new();
    kitchen.script(GUEST);
    kitchen.ok(["ps"]);
    let file = kitchen.home().join(".config/brigade/config.toml");
    let model = std::fs::read_to_string(file).unwrap();
    kitchen.configure(&format!("{model}\n[mcp_servers.pantry]\ncommand = [\"/nowhere/server\"]\n"));
    for option in ["--mcp=pantry", "--deny=pantry__*"] {
        let ran = kitchen.run(["run", option, "Look"]);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains("`brigade daemon stop` has it"), "{}", ran.err);
    }
    kitchen.ok(["daemon", "stop"]);
}

#[test]
fn a_server_with_a_name_that_leaves_doubt_is_refused() {
    let kitchen = Kitchen::new();
    kitchen.configure("[mcp_servers.a__b]\ncommand = [\"x\"]\n");
    let ran = kitchen.run(["config"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("\"a__b\""), "{}", ran.err);
}

#[test]
fn a_server_that_outlives_a_killed_daemon_is_ended_by_the_next_one() {
    let kitchen = Kitchen::new();
    kitchen.script("agent *\nturn\n  say Never.\n");
    let file = kitchen.home().join(".config/brigade/config.toml");
    let model = std::fs::read_to_string(file).unwrap();
    // It neither answers nor ends with its input.
    let command = "echo $$ >> servers; exec sleep 1000";
    let project = kitchen.project();
    kitchen.configure(&format!(
        "{model}\n[mcp_servers.deaf]\ncommand = [\"/bin/sh\", \"-c\", {command:?}]\ncwd = {project:?}\n"
    ));
    kitchen.ok(["run", "-d", "--mcp", "deaf", "Look"]);
    let first: u32 = kitchen.file("servers").trim().parse().unwrap();
    kitchen.kill_daemon();
    assert!(is_there(first), "nobody has told it to go");
    kitchen.ok(["ps"]);
    poll("it is ended", || (!is_there(first)).then_some(()));
    kitchen.ok(["daemon", "stop"]);
    let left = std::fs::read_dir(kitchen.state().join("servers")).unwrap().count();
    assert_eq!(left, 0, "what the next one started ended with it");
}
