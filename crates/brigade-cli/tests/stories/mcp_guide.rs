//! Runs the configuration and the commands of the guide to MCP servers. This program stands in for
//! `npx` as their server.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, Write, stdin};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::story_env::{BRIGADE, Ran, StoryEnv};

const GUIDE: &str = include_str!("../../../../docs/mcp-servers.md");

const LOG: &str = "BRIGADE_TEST_GUIDE_LOG";
const TOKEN: &str = "GITHUB_PERSONAL_ACCESS_TOKEN";

const SCRIPT: &str = r#"
agent triage
turn
  call github__get_issue {"number": 7}
turn
  when opened on Monday
  say Issue 7 is the newest.

agent *
turn
  when Which issues
  call github__get_issue {"number": 7}
turn
  when opened on Monday
  say Issue 7.
turn
  when duplicate
  call github__delete_issue {"number": 7}
turn
  when there is no tool "github__delete_issue"
  say I may not delete it.
"#;

/// A part of the output of each command of the guide.
const PRINTS: [(&str, &[&str]); 5] = [
    ("brigade doctor ", &["github: 2 tools", "docs cannot be reached: `bearer`: the environment"]),
    ("brigade daemon stop ", &["stopped"]),
    ("brigade run --mcp github '", &["Issue 7.\n"]),
    ("brigade run --mcp github --deny ", &["I may not delete it.\n"]),
    ("brigade run --allow ", &["Issue 7 is the newest.\n"]),
];

#[test]
fn the_guide_to_mcp_servers_is_correct() {
    let story = StoryEnv::new();
    story.script(SCRIPT);
    story.ok(["ps"]);
    let bin = story.directory("bin");
    let log = story.directory("log").join("calls");
    stand_in(&bin.join("npx"), &log);
    configure(&story);
    assert!(GUIDE.contains("`mcp_servers: [github]`"), "the definition below uses it");
    let front = "name: triage\ndescription: Sorts issues.\nmcp_servers: [github]";
    story.define("triage", &format!("---\n{front}\n---\nSort them.\n"));
    story.trust();

    let directory = Path::new(BRIGADE).parent().unwrap();
    let path = format!("{}:{}:/usr/bin:/bin", bin.display(), directory.display());
    let commands: Vec<&str> = example("sh").lines().collect();
    assert_eq!(commands.len(), PRINTS.len(), "{commands:?}");
    for (command, (begin, prints)) in commands.into_iter().zip(PRINTS) {
        assert!(command.starts_with(begin), "{command}");
        let mut shell = Command::new("/bin/sh");
        story.hermetic(shell.args(["-c", command]));
        let ran = Ran::from(shell.env("PATH", &path).output().unwrap());
        assert_eq!(ran.code, 0, "{command}: {ran:?}");
        assert!(prints.iter().all(|part| ran.out.contains(part)), "{command}: {ran:?}");
        assert!(!ran.err.contains("lets it"), "the named server is permitted: {ran:?}");
    }
    let called = fs::read_to_string(log).unwrap();
    assert_eq!(called, "get_issue with the token\nget_issue with the token\n");
    story.ok(["daemon", "stop"]);
}

/// Returns the example of the guide in a language.
fn example(language: &str) -> &'static str {
    let (_, example) = GUIDE.split_once(&format!("```{language}\n")).unwrap();
    example.split_once("```").unwrap().0
}

/// Writes the configuration of the guide, with the home of this story.
fn configure(story: &StoryEnv) {
    let home = story.home();
    fs::create_dir(home.join(".secrets")).unwrap();
    fs::write(home.join(".secrets/github"), "the-token\n").unwrap();
    let file = home.join(".config/brigade/config.toml");
    let model = fs::read_to_string(&file).unwrap();
    let servers = example("toml").replace("/home/me", home.to_str().unwrap());
    fs::write(file, format!("{model}\n{servers}")).unwrap();
}

fn stand_in(npx: &Path, log: &Path) {
    let this = std::env::current_exe().unwrap();
    let this = this.display();
    let log = log.display();
    let script = format!(
        "#!/bin/sh\n[ \"$*\" = '-y @modelcontextprotocol/server-github' ] || exit 64\n\
         {LOG}='{log}' exec '{this}' mcp_guide::serve --exact --ignored --nocapture --quiet\n"
    );
    fs::write(npx, script).unwrap();
    fs::set_permissions(npx, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Serves MCP if the stand-in for `npx` has started this test.
#[test]
#[ignore = "is started by another test"]
fn serve() {
    let Some(log) = std::env::var_os(LOG) else { return };
    for line in stdin().lock().lines().map_while(Result::ok) {
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some((kind, body)) = reply_to(&message, Path::new(&log)) {
            let reply = json!({"jsonrpc": "2.0", "id": message["id"], kind: body});
            println!("{reply}");
        }
    }
    std::process::exit(0);
}

fn reply_to(message: &Value, log: &Path) -> Option<(&'static str, Value)> {
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "github", "version": "1"},
        }),
        "tools/list" => json!({"tools": [tool("get_issue"), tool("delete_issue")]}),
        "tools/call" => {
            let name = message["params"]["name"].as_str()?;
            let has_token = std::env::var(TOKEN).is_ok_and(|token| token == "the-token");
            let token = if has_token { "the token" } else { "no token" };
            let mut log = OpenOptions::new().create(true).append(true).open(log).unwrap();
            writeln!(log, "{name} with {token}").unwrap();
            json!({"content": [{"type": "text", "text": "Issue 7, opened on Monday"}]})
        }
        _ if message["id"].is_null() => return None,
        // For example the newest handshake, after which the client tries the old one.
        _ => return Some(("error", json!({"code": -32_601, "message": "no such method"}))),
    };
    Some(("result", result))
}
