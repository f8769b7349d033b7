//! What is asked for within a task when no daemon is there.

use std::fs;

use serde_json::{Value, json};

use crate::kitchen::{BRIGADE, Kitchen};

#[test]
fn a_bridge_within_a_task_starts_no_daemon_that_would_end_with_it() {
    let kitchen = Kitchen::new();
    let client = json!({ "name": "cook", "version": "1" });
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let call = json!({ "name": "list_tasks", "arguments": {} });
    let lines = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }),
    ];
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(kitchen.project().join("lines"), lines).unwrap();
    // Its input stays open until it has answered.
    let script = format!(
        "until [ -e go ]; do sleep 0.02; done; \
         (cat lines; until grep -q '\"id\":2' said; do sleep 0.02; done) | {BRIGADE} mcp > said; \
         echo over > over"
    );
    kitchen.ok(["exec", "-d", "--shell", &script]);
    kitchen.ok(["daemon", "stop"]);
    fs::write(kitchen.project().join("said"), "").unwrap();
    fs::write(kitchen.project().join("go"), "").unwrap();
    kitchen.file("over");
    let said = kitchen.file("said");
    let answers = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let answer = answers.into_iter().find(|answer| answer["id"] == 2).unwrap();
    let error = &answer["result"]["structuredContent"]["error"];
    assert_eq!(error["kind"], "unavailable", "{answer}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("within a task") && message.contains("daemon start"), "{message}");
    assert_eq!(kitchen.run(["daemon", "status"]).code, 127, "none was started");
}

#[test]
fn nor_does_a_command_start_one_for_another_state_folder() {
    let kitchen = Kitchen::new();
    let other = kitchen.folder("other").join("state");
    let script = format!("{BRIGADE} --state {} ps", other.display());
    let ran = kitchen.run(["exec", "--shell", &script]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("within a task"), "{ran:?}");
    assert!(!other.exists());
}
