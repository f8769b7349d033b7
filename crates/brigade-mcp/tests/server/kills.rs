//! Calls and waits survive killed daemons and MCP servers.

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use brigade_protocol::frames::ClientRole;
use brigade_protocol::requests::ShutdownRequest;
use brigade_protocol::{DaemonConnection, StateDir};
use serde_json::json;

use crate::support::TestWorkspace;

const LONG: &str = "echo begun >> count; echo first; sleep 3; echo last; exit 5";

#[tokio::test]
async fn a_call_survives_a_killed_daemon() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
    let call = client.call("run_process", json!({ "command": LONG }));
    let kills = async {
        workspace.until("the process has started", || workspace.file("count") == "begun\n").await;
        for _ in 0..2 {
            workspace.kill_daemon();
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    };
    let (reply, ()) = tokio::join!(call, kills);
    reply.has("process:1 failed (exit code 5)").has("first\nlast");
    assert_eq!(workspace.file("count"), "begun\n", "the process ran once");
}

#[tokio::test]
async fn a_call_survives_a_daemon_that_shuts_down() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
    let call = client.call("run_process", json!({ "command": LONG }));
    let shutdown = async {
        workspace.until("the process has started", || workspace.file("count") == "begun\n").await;
        let state_dir = StateDir::new(workspace.state());
        let operator = DaemonConnection::connect(&state_dir, ClientRole::Operator).await.unwrap();
        operator.call(ShutdownRequest {}).await.unwrap();
    };
    let (reply, ()) = tokio::join!(call, shutdown);
    reply.has("process:1 failed (exit code 5)").has("first\nlast");
    assert_eq!(workspace.file("count"), "begun\n", "the process ran once");
}

#[tokio::test]
async fn a_wait_survives_a_killed_daemon() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
    let arguments = json!({"command": LONG, "background": true});
    client.call("run_process", arguments).await;
    let wait = client.call("wait_tasks", json!({}));
    let kill = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        workspace.kill_daemon();
    };
    let (reply, ()) = tokio::join!(wait, kill);
    reply.has("exit code 5").has("last");
}

#[tokio::test]
async fn a_result_survives_killed_server_and_daemon() {
    let workspace = TestWorkspace::new();
    let mut bridge = workspace.bridge();
    let mut input = bridge.stdin.take().unwrap();
    let mut output = BufReader::new(bridge.stdout.take().unwrap()).lines();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"}}});
    writeln!(input, "{hello}").unwrap();
    output.next().unwrap().unwrap();
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "run_process", "arguments": {"command": LONG, "name": "Long"}}});
    writeln!(input, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .unwrap();
    writeln!(input, "{call}").unwrap();
    workspace.until("the process has started", || workspace.file("count") == "begun\n").await;
    bridge.kill().unwrap();
    bridge.wait().unwrap();
    workspace.kill_daemon();
    let next = workspace.client("raw").await;
    let reply = next.call("wait_tasks", json!({"tasks": ["Long"]})).await;
    reply.has("process:1 \"Long\" failed (exit code 5)").has("first\nlast");
    assert_eq!(workspace.file("count"), "begun\n", "the process ran once");
    assert_eq!(reply.structured["still_running"], json!([]));
}
