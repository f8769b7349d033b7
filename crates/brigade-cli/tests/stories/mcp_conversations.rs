//! Two windows of one coding agent: each a `brigade mcp` of its own in the same workspace.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, ChildStdout, Command};

use serde_json::{Value, json};

use crate::kitchen::{BRIGADE, Kitchen, Ran};

struct Window {
    server: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    asked: u64,
}

impl Window {
    fn open(kitchen: &Kitchen, client: &str) -> Self {
        let mut server = kitchen.start_fed(["mcp"]);
        let input = server.stdin.take().unwrap();
        let output = BufReader::new(server.stdout.take().unwrap()).lines();
        let mut window = Self { server, input, output, asked: 0 };
        let client = json!({"name": client, "version": "1"});
        window.ask(
            "initialize",
            json!({
                "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client,
            }),
        );
        writeln!(window.input, r#"{{"jsonrpc":"2.0","method":"notifications/initialized"}}"#)
            .unwrap();
        window
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.input, "{line}").unwrap();
        loop {
            let heard: Value = serde_json::from_str(&self.output.next().unwrap().unwrap()).unwrap();
            if heard["id"] == id {
                return heard["result"].clone();
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    fn taken(&mut self) -> Vec<String> {
        let waited = self.call("wait_tasks", json!({"mode": "all"}));
        let ended = waited["structuredContent"]["ended"].as_array().unwrap().iter();
        ended.map(|one| one["address"].as_str().unwrap().to_owned()).collect()
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
fn two_windows_of_one_agent_take_their_own_results() {
    let kitchen = Kitchen::new();
    let [mut first, mut second] = [0; 2].map(|_| Window::open(&kitchen, "claude-code"));
    first.call("run_process", background("sleep 1; echo one"));
    second.call("run_process", background("echo two"));
    kitchen.until_state("2", "succeeded");
    assert_eq!(first.taken(), ["process:1"]);
    kitchen.kill_daemon();
    assert_eq!(first.taken(), Vec::<String>::new());
    assert_eq!(second.taken(), ["process:2"]);
    let shown = |task: &str| {
        let out = kitchen.ok(["show", task]);
        let line = out.lines().find(|line| line.contains("claude-code, conversation "));
        line.unwrap_or_else(|| panic!("no client in {out}")).to_owned()
    };
    assert_ne!(shown("1"), shown("2"));
}

#[test]
fn the_line_that_wakes_runs_without_a_path() {
    let kitchen = Kitchen::new();
    let mut window = Window::open(&kitchen, "claude-code");
    let said = window.call("run_process", background("sleep 1; exit 3"));
    let line = said["structuredContent"]["wait_command"].as_str().unwrap();
    assert!(line.starts_with(BRIGADE), "{line}");
    let mut shell = Command::new("/bin/sh");
    kitchen.hermetic(shell.args(["-c", line]));
    let ran = Ran::from(shell.env("PATH", "/nowhere").output().unwrap());
    assert_eq!((ran.code, &*ran.out), (3, "process:1 failed (3)\n"), "{ran:?}");
}

/// Whoever may not connect is told so, and not that there is no daemon.
#[test]
fn a_wait_that_may_not_connect_says_so() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "--detach", "--", "sleep", "60"]);
    let mut wait = match rustix::process::getuid().is_root() {
        // Nothing is forbidden to root: another user stands for the sandbox.
        true => {
            let mut other = Command::new("setpriv");
            other.args(["--reuid=65534", "--regid=65534", "--clear-groups", BRIGADE, "wait", "1"]);
            kitchen.hermetic(&mut other);
            other.env("HOME", "/").current_dir("/");
            other
        }
        false => {
            let none = std::fs::Permissions::from_mode(0o0);
            std::fs::set_permissions(kitchen.socket(), none).unwrap();
            kitchen.command(["wait", "1"])
        }
    };
    let ran = Ran::from(wait.output().unwrap());
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("not permitted from here"), "{ran:?}");
    assert!(!ran.err.contains("no daemon is running"), "{ran:?}");
}
