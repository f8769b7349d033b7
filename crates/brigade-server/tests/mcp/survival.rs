//! What is killed in the middle.

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use brigade_server::StateDir;
use brigade_server::frames::ClientRole;
use brigade_server::requests::ShutdownRequest;
use serde_json::{Value, json};

use crate::support::Kitchen;

const LONG: &str = "echo begun >> count; echo first; sleep 3; echo last; exit 5";

#[tokio::test]
async fn a_daemon_killed_in_the_middle_of_a_call_is_not_noticed() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    let call = client.call("run_process", json!({ "command": LONG }));
    let kills = async {
        kitchen.until("the command", || kitchen.file("count") == "begun\n").await;
        for _ in 0..2 {
            kitchen.kill_daemon();
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    };
    let (said, ()) = tokio::join!(call, kills);
    said.has("process:1 failed (exit code 5)").has("first\nlast");
    assert_eq!(kitchen.file("count"), "begun\n", "it ran once");
}

#[tokio::test]
async fn a_daemon_that_makes_way_is_not_noticed_either() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    let call = client.call("run_process", json!({ "command": LONG }));
    let leaves = async {
        kitchen.until("the command", || kitchen.file("count") == "begun\n").await;
        let places = StateDir::new(kitchen.state());
        let operator =
            brigade_server::DaemonConnection::connect(&places, ClientRole::Operator).await.unwrap();
        operator.call(ShutdownRequest {}).await.unwrap();
    };
    let (said, ()) = tokio::join!(call, leaves);
    said.has("process:1 failed (exit code 5)").has("first\nlast");
    assert_eq!(kitchen.file("count"), "begun\n", "it ran once");
}

#[tokio::test]
async fn a_wait_survives_the_daemon() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    let arguments = json!({"command": LONG, "background": true});
    client.call("run_process", arguments).await;
    let wait = client.call("wait_tasks", json!({}));
    let kill = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        kitchen.kill_daemon();
    };
    let (said, ()) = tokio::join!(wait, kill);
    said.has("exit code 5").has("last");
}

#[tokio::test]
async fn bridge_and_daemon_killed_together_leave_the_result() {
    let kitchen = Kitchen::new();
    let mut bridge = kitchen.bridge();
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
    kitchen.until("the command", || kitchen.file("count") == "begun\n").await;
    bridge.kill().unwrap();
    bridge.wait().unwrap();
    kitchen.kill_daemon();
    let next = kitchen.client("raw").await;
    let said = next.call("wait_tasks", json!({"tasks": ["Long"]})).await;
    said.has("process:1 \"Long\" failed (exit code 5)").has("first\nlast");
    assert_eq!(kitchen.file("count"), "begun\n", "it ran once");
    let left: Value = said.structured["still_running"].clone();
    assert_eq!(left, json!([]));
}
