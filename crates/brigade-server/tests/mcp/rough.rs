//! Clients that do not keep to the protocol, or speak an older or newer one.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::Kitchen;

pub(crate) struct Raw {
    pub(crate) bridge: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Raw {
    pub(crate) fn new(kitchen: &Kitchen) -> Self {
        let mut bridge = kitchen.bridge();
        let input = bridge.stdin.take();
        let output = BufReader::new(bridge.stdout.take().unwrap()).lines();
        Self { bridge, input, output }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn hear(&mut self) -> Value {
        serde_json::from_str(&self.output.next().unwrap().unwrap()).unwrap()
    }

    pub(crate) fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.say(&line.to_string());
        loop {
            let heard = self.hear();
            if heard["id"] == id {
                return heard;
            }
        }
    }

    pub(crate) fn hello(&mut self, version: &str) -> Value {
        let client = json!({"name": "raw", "version": "1"});
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
        let heard = self.ask(1, "initialize", params);
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        heard
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = self.bridge.kill();
        let _ = self.bridge.wait();
    }
}

#[tokio::test]
async fn every_version_is_spoken() {
    let kitchen = Kitchen::new();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut raw = Raw::new(&kitchen);
        assert_eq!(raw.hello(version)["result"]["protocolVersion"], version);
        let arguments = json!({"name": "run_process", "arguments": {"command": "echo hi"}});
        let heard = raw.ask(2, "tools/call", arguments);
        assert_eq!(heard["result"]["structuredContent"]["state"], "succeeded", "{heard}");
    }
    let mut raw = Raw::new(&kitchen);
    assert_eq!(raw.hello("1999-01-01")["result"]["protocolVersion"], "2025-11-25");
    let mut raw = Raw::new(&kitchen);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    });
    let heard = raw.ask(1, "server/discover", json!({ "_meta": meta }));
    let versions = heard["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{heard}");
    let arguments = json!({"command": "sleep 2; echo hi"});
    let params = json!({"name": "run_process", "arguments": arguments, "_meta": meta});
    let heard = raw.ask(2, "tools/call", params);
    assert_eq!(heard["result"]["resultType"], "task", "{heard}");
    let id = heard["result"]["taskId"].clone();
    let listen = json!({"jsonrpc": "2.0", "id": 9, "method": "subscriptions/listen",
        "params": {"notifications": {"taskIds": [id]}, "_meta": meta}});
    raw.say(&listen.to_string());
    let heard = raw.hear();
    assert_eq!(heard["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(heard["params"]["notifications"], json!({"taskIds": [id]}), "{heard}");
    let mut told = Vec::new();
    while told.last() != Some(&json!("completed")) {
        let heard = raw.hear();
        if heard["method"] == "notifications/tasks" {
            let within = &heard["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
            assert_eq!(*within, json!(9), "{heard}");
            told.push(heard["params"]["status"].clone());
        }
    }
    assert_eq!(told, ["working", "completed"]);
    let params = json!({"taskId": id, "_meta": meta});
    let heard = raw.ask(3, "tasks/get", params);
    assert_eq!(heard["result"]["status"], "completed", "{heard}");
}

#[tokio::test]
async fn whatever_is_said_is_answered() {
    let kitchen = Kitchen::new();
    let mut raw = Raw::new(&kitchen);
    raw.hello("2025-11-25");
    raw.say("{nonsense");
    let heard = raw.hear();
    assert_eq!(heard["error"]["code"], -32700, "{heard}");
    for (line, id, code) in [
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":5}}"#, json!(7), -32602),
        (r#"{"jsonrpc":"2.0","id":"x","method":"no/such"}"#, json!("x"), -32601),
        (r#"{"id":8,"method":"tools/list"}"#, json!(8), -32600),
        (r#"[{"jsonrpc":"2.0","id":9,"method":"ping"}]"#, Value::Null, -32600),
        ("true", Value::Null, -32600),
    ] {
        raw.say(line);
        let heard = raw.hear();
        assert_eq!((&heard["id"], &heard["error"]["code"]), (&id, &json!(code)), "{line}: {heard}");
    }
    let huge = "x".repeat(9 * 1024 * 1024);
    let arguments = json!({"name": "run_process", "arguments": {"command": huge}});
    let heard = raw.ask(10, "tools/call", arguments);
    assert_eq!(heard["error"]["code"], -32600, "{heard}");
    let large = "x".repeat(4 * 1024 * 1024);
    let arguments = json!({"name": "run_process", "arguments": {"command": large}});
    let heard = raw.ask(11, "tools/call", arguments);
    assert_eq!(heard["result"]["structuredContent"]["error"]["kind"], "invalid");
    let heard = raw.ask(12, "tools/call", json!({"name": "list_tasks"}));
    assert_eq!(heard["result"]["structuredContent"]["total"], 0, "{heard}");
}

#[tokio::test]
async fn a_client_that_leaves_in_mid_call_loses_nothing() {
    let kitchen = Kitchen::new();
    let mut raw = Raw::new(&kitchen);
    raw.hello("2025-06-18");
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "run_process", "arguments": {"command": "echo in >> count; sleep 4; echo out"}}});
    raw.say(&call.to_string());
    kitchen.until("the command", || kitchen.file("count") == "in\n").await;
    raw.input.take();
    let began = Instant::now();
    assert!(raw.bridge.wait().unwrap().success());
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let next = kitchen.client("raw").await;
    let said = next.call("wait_tasks", json!({"tasks": ["process:1"]})).await;
    said.has("process:1 succeeded").has("out");
    assert_eq!(kitchen.file("count"), "in\n");
}

#[tokio::test]
async fn who_asks_and_goes_is_still_answered() {
    let kitchen = Kitchen::new();
    let mut raw = Raw::new(&kitchen);
    raw.hello("2025-06-18");
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "run_process", "arguments": {"command": "echo hi"}}});
    raw.say(&call.to_string());
    raw.input.take();
    let heard = raw.hear();
    assert_eq!(heard["result"]["structuredContent"]["exit_code"], 0, "{heard}");
    assert!(raw.bridge.wait().unwrap().success());
}
