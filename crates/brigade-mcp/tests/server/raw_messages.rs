//! Clients that break the protocol, or use an older or newer version of it.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::TestWorkspace;

/// An MCP server process, and a client that writes and reads its lines.
pub(crate) struct RawClient {
    pub(crate) bridge: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl RawClient {
    pub(crate) fn new(workspace: &TestWorkspace) -> Self {
        let mut bridge = workspace.bridge();
        let input = bridge.stdin.take();
        let output = BufReader::new(bridge.stdout.take().unwrap()).lines();
        Self { bridge, input, output }
    }

    fn write_line(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn read_message(&mut self) -> Value {
        serde_json::from_str(&self.output.next().unwrap().unwrap()).unwrap()
    }

    pub(crate) fn request(&mut self, id: u64, method: &str, params: Value) -> Value {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.write_line(&line.to_string());
        loop {
            let response = self.read_message();
            if response["id"] == id {
                return response;
            }
        }
    }

    pub(crate) fn hello(&mut self, version: &str) -> Value {
        let client = json!({"name": "raw", "version": "1"});
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
        let response = self.request(1, "initialize", params);
        self.write_line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        response
    }
}

impl Drop for RawClient {
    fn drop(&mut self) {
        let _ = self.bridge.kill();
        let _ = self.bridge.wait();
    }
}

#[tokio::test]
async fn every_protocol_version_is_served() {
    let workspace = TestWorkspace::new();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut raw = RawClient::new(&workspace);
        assert_eq!(raw.hello(version)["result"]["protocolVersion"], version);
        let arguments = json!({"name": "run_process", "arguments": {"command": "echo hi"}});
        let response = raw.request(2, "tools/call", arguments);
        assert_eq!(response["result"]["structuredContent"]["state"], "succeeded", "{response}");
    }
    let mut raw = RawClient::new(&workspace);
    assert_eq!(raw.hello("1999-01-01")["result"]["protocolVersion"], "2025-11-25");
    let mut raw = RawClient::new(&workspace);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    });
    let response = raw.request(1, "server/discover", json!({ "_meta": meta }));
    let versions = response["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{response}");
    let arguments = json!({"command": "sleep 2; echo hi"});
    let params = json!({"name": "run_process", "arguments": arguments, "_meta": meta});
    let response = raw.request(2, "tools/call", params);
    assert_eq!(response["result"]["resultType"], "task", "{response}");
    let id = response["result"]["taskId"].clone();
    let listen = json!({"jsonrpc": "2.0", "id": 9, "method": "subscriptions/listen",
        "params": {"notifications": {"taskIds": [id]}, "_meta": meta}});
    raw.write_line(&listen.to_string());
    let response = raw.read_message();
    assert_eq!(response["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(response["params"]["notifications"], json!({"taskIds": [id]}), "{response}");
    let mut statuses = Vec::new();
    while statuses.last() != Some(&json!("completed")) {
        let response = raw.read_message();
        if response["method"] == "notifications/tasks" {
            let subscription =
                &response["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
            assert_eq!(*subscription, json!(9), "{response}");
            statuses.push(response["params"]["status"].clone());
        }
    }
    assert_eq!(statuses, ["working", "completed"]);
    let params = json!({"taskId": id, "_meta": meta});
    let response = raw.request(3, "tasks/get", params);
    assert_eq!(response["result"]["status"], "completed", "{response}");
}

#[tokio::test]
async fn every_line_gets_a_response() {
    let workspace = TestWorkspace::new();
    let mut raw = RawClient::new(&workspace);
    raw.hello("2025-11-25");
    raw.write_line("{nonsense");
    let response = raw.read_message();
    assert_eq!(response["error"]["code"], -32700, "{response}");
    for (line, id, code) in [
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":5}}"#, json!(7), -32602),
        (r#"{"jsonrpc":"2.0","id":"x","method":"no/such"}"#, json!("x"), -32601),
        (r#"{"id":8,"method":"tools/list"}"#, json!(8), -32600),
        (r#"[{"jsonrpc":"2.0","id":9,"method":"ping"}]"#, Value::Null, -32600),
        ("true", Value::Null, -32600),
    ] {
        raw.write_line(line);
        let response = raw.read_message();
        assert_eq!(
            (&response["id"], &response["error"]["code"]),
            (&id, &json!(code)),
            "{line}: {response}"
        );
    }
    let huge = "x".repeat(9 * 1024 * 1024);
    let arguments = json!({"name": "run_process", "arguments": {"command": huge}});
    let response = raw.request(10, "tools/call", arguments);
    assert_eq!(response["error"]["code"], -32600, "{response}");
    let large = "x".repeat(4 * 1024 * 1024);
    let arguments = json!({"name": "run_process", "arguments": {"command": large}});
    let response = raw.request(11, "tools/call", arguments);
    assert_eq!(response["result"]["structuredContent"]["error"]["kind"], "invalid");
    let response = raw.request(12, "tools/call", json!({"name": "list_tasks"}));
    assert_eq!(response["result"]["structuredContent"]["total"], 0, "{response}");
}

#[tokio::test]
async fn a_disconnect_during_a_call_loses_nothing() {
    let workspace = TestWorkspace::new();
    let mut raw = RawClient::new(&workspace);
    raw.hello("2025-06-18");
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "run_process", "arguments": {"command": "echo in >> count; sleep 4; echo out"}}});
    raw.write_line(&call.to_string());
    workspace.until("the process has started", || workspace.file("count") == "in\n").await;
    raw.input.take();
    let started_at = Instant::now();
    assert!(raw.bridge.wait().unwrap().success());
    assert!(started_at.elapsed() < Duration::from_secs(3), "{:?}", started_at.elapsed());
    let next = workspace.client("raw").await;
    let reply = next.call("wait_tasks", json!({"tasks": ["process:1"]})).await;
    reply.has("process:1 succeeded").has("out");
    assert_eq!(workspace.file("count"), "in\n");
}

#[tokio::test]
async fn a_call_is_answered_after_the_input_is_closed() {
    let workspace = TestWorkspace::new();
    let mut raw = RawClient::new(&workspace);
    raw.hello("2025-06-18");
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "run_process", "arguments": {"command": "echo hi"}}});
    raw.write_line(&call.to_string());
    raw.input.take();
    let response = raw.read_message();
    assert_eq!(response["result"]["structuredContent"]["exit_code"], 0, "{response}");
    assert!(raw.bridge.wait().unwrap().success());
}
