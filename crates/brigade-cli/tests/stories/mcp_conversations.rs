//! Two windows of one coding agent: each has its own `brigade mcp` in the same workspace.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, ChildStdout, Command};

use serde_json::{Value, json};

use crate::story_env::{BRIGADE, Ran, StoryEnv};

struct Window {
    server: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    last_id: u64,
}

impl Window {
    fn open(story: &StoryEnv, client: &str) -> Self {
        let mut server = story.start_fed(["mcp"]);
        let input = server.stdin.take().unwrap();
        let output = BufReader::new(server.stdout.take().unwrap()).lines();
        let mut window = Self { server, input, output, last_id: 0 };
        let client = json!({"name": client, "version": "1"});
        window.request(
            "initialize",
            json!({
                "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client,
            }),
        );
        writeln!(window.input, r#"{{"jsonrpc":"2.0","method":"notifications/initialized"}}"#)
            .unwrap();
        window
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.input, "{line}").unwrap();
        loop {
            let message: Value =
                serde_json::from_str(&self.output.next().unwrap().unwrap()).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    fn collect_results(&mut self) -> Vec<String> {
        let waited = self.call("wait_tasks", json!({"mode": "all"}));
        let ended = waited["structuredContent"]["ended"].as_array().unwrap().iter();
        ended.map(|task| task["address"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn background(command: &str) -> Value {
    json!({"command": command, "background": true})
}

#[test]
fn two_windows_of_one_agent_collect_their_own_results() {
    let story = StoryEnv::new();
    let [mut first, mut second] = [0; 2].map(|_| Window::open(&story, "claude-code"));
    first.call("run_process", background("sleep 1; echo one"));
    second.call("run_process", background("echo two"));
    story.until_state("2", "succeeded");
    assert_eq!(first.collect_results(), ["process:1"]);
    story.kill_daemon();
    assert_eq!(first.collect_results(), Vec::<String>::new());
    assert_eq!(second.collect_results(), ["process:2"]);
    let shown = |task: &str| {
        let out = story.ok(["show", task]);
        let line = out.lines().find(|line| line.contains("claude-code, conversation "));
        line.unwrap_or_else(|| panic!("no client in {out}")).to_owned()
    };
    assert_ne!(shown("1"), shown("2"));
}

#[test]
fn the_wait_command_runs_without_a_path() {
    let story = StoryEnv::new();
    let mut window = Window::open(&story, "claude-code");
    let started = window.call("run_process", background("sleep 1; exit 3"));
    let line = started["structuredContent"]["wait_command"].as_str().unwrap();
    assert!(line.starts_with(BRIGADE), "{line}");
    let mut shell = Command::new("/bin/sh");
    story.hermetic(shell.args(["-c", line]));
    let ran = Ran::from(shell.env("PATH", "/nowhere").output().unwrap());
    assert_eq!((ran.code, &*ran.out), (3, "process:1 failed (3)\n"), "{ran:?}");
}

/// A client without permission gets that error, and not "no daemon is running".
#[test]
fn a_forbidden_connection_is_reported() {
    let story = StoryEnv::new();
    story.ok(["exec", "--detach", "--", "sleep", "60"]);
    let mut wait = match rustix::process::getuid().is_root() {
        // Root is never refused, so another user stands in for the sandbox.
        true => {
            let mut other = Command::new("setpriv");
            other.args(["--reuid=65534", "--regid=65534", "--clear-groups", BRIGADE, "wait", "1"]);
            story.hermetic(&mut other);
            other.env("HOME", "/").current_dir("/");
            other
        }
        false => {
            let none = std::fs::Permissions::from_mode(0o0);
            std::fs::set_permissions(story.socket(), none).unwrap();
            story.command(["wait", "1"])
        }
    };
    let ran = Ran::from(wait.output().unwrap());
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("not permitted from here"), "{ran:?}");
    assert!(!ran.err.contains("no daemon is running"), "{ran:?}");
}
