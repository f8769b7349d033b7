//! A scripted server: the test program itself, run again as a child process.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mcp_client::{McpServerConfig, McpTimeouts};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::mcp_client;

const DIRECTORY: &str = "BRIGADE_TEST_MCP_DIRECTORY";

/// Runs the server in the process that another test has started.
#[test]
#[ignore = "is started by other tests"]
fn serve() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        Server { directory: directory.into() }.run();
    }
}

/// The directory through which a test controls its server.
pub(super) struct Script(TempDir);

impl Script {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn server(&self, module: &str) -> McpServerConfig {
        let name = format!("{}::serve", module.split_once("::").unwrap_or_default().1);
        let arguments = [&name, "--exact", "--ignored", "--nocapture", "--quiet"];
        let program = std::env::current_exe().unwrap();
        McpServerConfig::stdio(program.to_str().unwrap(), arguments)
            .env(DIRECTORY, self.0.path().to_str().unwrap())
            .timeouts(McpTimeouts { start: Duration::from_secs(60), ..McpTimeouts::default() })
    }

    /// Makes the server behave unusually, once or always.
    pub(super) fn set(&self, flag: &str) {
        fs::write(self.0.path().join(flag), "").unwrap();
    }

    pub(super) fn unset(&self, flag: &str) {
        fs::remove_file(self.0.path().join(flag)).unwrap();
    }

    /// Returns the log of the server so far.
    pub(super) fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.0.path().join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    pub(super) fn count(&self, line: &str) -> usize {
        self.log().iter().filter(|logged| *logged == line).count()
    }

    pub(super) async fn until(&self, condition: &str, holds: impl Fn(&[String]) -> bool) {
        for _ in 0..3_000 {
            if holds(&self.log()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("this never happened: {condition}: {:?}", self.log());
    }
}

struct Server {
    directory: PathBuf,
}

impl Server {
    fn run(&self) {
        self.log(&format!("started {}", std::process::id()));
        if self.has("ends-at-once") {
            self.log("ends at once");
            eprintln!("no licence for this machine");
            std::process::exit(3);
        }
        if self.has("has-child") {
            // The shell logs the pid of its child, and nobody waits for that child.
            let script = format!("sleep 1000 & echo child $! >> '{}'", self.path("log").display());
            std::process::Command::new("sh").args(["-c", &script]).status().unwrap();
        }
        for line in stdin().lock().lines() {
            let Ok(Ok(message)) = line.map(|line| serde_json::from_str::<Value>(&line)) else {
                continue;
            };
            self.answer(&message);
        }
        self.log("input ended");
        if self.has("stays") {
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        std::process::exit(0);
    }

    fn answer(&self, message: &Value) {
        let id = &message["id"];
        match message["method"].as_str().unwrap_or_default() {
            _ if self.has("never-answers") => {}
            "initialize" => self.say(json!({"jsonrpc": "2.0", "id": id, "result": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "scripted", "version": "1"},
            }})),
            "tools/list" => {
                self.log("listed");
                let mut page = json!({"tools": self.tools()});
                if self.has("pages") || self.has("heavy-pages") {
                    page["nextCursor"] = "more".into();
                }
                self.say(json!({"jsonrpc": "2.0", "id": id, "result": page}));
                while self.has("deaf") {
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
            "tools/call" => self.call(id, &message["params"]),
            "notifications/cancelled" => self.log("cancelled"),
            method if id.is_null() => self.log(method),
            method => self.say(json!({"jsonrpc": "2.0", "id": id, "error": {
                "code": -32601, "message": format!("no {method}")}})),
        }
    }

    fn tools(&self) -> Vec<Value> {
        let tool = |name: &str, hints: Value| {
            json!({"name": name, "description": name, "annotations": hints,
                "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}})
        };
        let mut tools = vec![
            tool("look", json!({"readOnlyHint": true})),
            tool("put", json!({"idempotentHint": true})),
            tool("act", json!({})),
            tool("odd", json!({"readOnlyHint": true})),
        ];
        tools[3]["outputSchema"] = json!({"type": "object", "required": ["sum"]});
        if self.has("heavy-pages") {
            let heavy = json!({"description": "x".repeat(60_000)});
            let heavy = |n| json!({"name": format!("heavy{n}"), "inputSchema": heavy});
            tools.extend((0..40).map(heavy));
        }
        if self.has("look-acts") {
            tools[0]["annotations"] = json!({});
        }
        if self.has("look-gone") {
            tools[0]["name"] = "gone".into();
        }
        if self.has("act-gone") {
            tools.remove(2);
        }
        if self.has("act-only-looks") {
            tools[2]["annotations"] = json!({"readOnlyHint": true});
        }
        if self.has("grown") {
            tools.push(tool("new", json!({})));
        }
        if self.has("lies") {
            tools.push(json!({"name": "lie", "inputSchema": "string"}));
        }
        if self.has("many") {
            tools.extend((0..5_000).map(|n| tool(&format!("t{n}"), json!({}))));
        }
        tools
    }

    fn call(&self, id: &Value, params: &Value) {
        let name = params["name"].as_str().unwrap_or_default();
        self.log(name);
        if self.took(&format!("die-at-{name}")) {
            std::process::exit(9);
        }
        let result = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        let answer = |result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
        if self.took("hang") {
            return;
        }
        if self.took("grow") {
            self.set("grown");
            for _ in 0..100 {
                self.notify("notifications/tools/list_changed", json!({}));
            }
        }
        if self.took("progress") {
            let token = &params["_meta"]["progressToken"];
            for step in 0..8 {
                self.notify(
                    "notifications/progress",
                    json!({"progressToken": token, "progress": step}),
                );
                std::thread::sleep(Duration::from_millis(300));
            }
        }
        if self.took("flood") {
            for n in 0..10_000 {
                let message = json!({"level": "info", "data": "x".repeat(100)});
                self.notify("notifications/message", message);
                self.notify("notifications/progress", json!({"progressToken": n, "progress": 1}));
            }
        }
        if self.took("garbage") {
            self.print("Debugger attached.\n{\"jsonrpc\":\n\u{7}[[[[[\n");
        }
        if self.took("wrong-id") {
            self.say(json!({"jsonrpc": "2.0", "id": 987_654, "result": result("for nobody")}));
            return;
        }
        if self.took("error") {
            let mut failed = result("no such thing");
            failed["isError"] = true.into();
            return self.say(answer(failed));
        }
        if self.took("token-late") {
            let token = std::env::var("TOKEN").unwrap_or_default();
            eprintln!("{}{token}", "x".repeat(995));
        }
        if self.took("token") {
            let token = std::env::var("TOKEN").unwrap_or_default();
            eprintln!("the token is {token}");
            return self.say(answer(result(&format!("the token is {token}"))));
        }
        let mut reply = match () {
            () if self.took("large") => result(&"x".repeat(10 << 20)),
            () if self.took("huge") => result(&"x".repeat(20 << 20)),
            () => result(&format!("{name}: {}", params["arguments"])),
        };
        if name == "odd" {
            reply["structuredContent"] = json!({"total": 7});
        }
        self.say(answer(reply));
    }

    fn notify(&self, method: &str, params: Value) {
        self.say(json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    fn say(&self, message: Value) {
        self.print(&format!("{message}\n"));
    }

    fn print(&self, text: &str) {
        let mut out = stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
    }

    fn log(&self, line: &str) {
        let path = self.directory.join("log");
        let mut log = OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(log, "{line}").unwrap();
    }

    fn path(&self, flag: &str) -> PathBuf {
        self.directory.join(flag)
    }

    fn has(&self, flag: &str) -> bool {
        Path::exists(&self.path(flag))
    }

    fn set(&self, flag: &str) {
        fs::write(self.path(flag), "").unwrap();
    }

    /// Returns true if the flag was set, and clears it.
    fn took(&self, flag: &str) -> bool {
        fs::remove_file(self.path(flag)).is_ok()
    }
}
