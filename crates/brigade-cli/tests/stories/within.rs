//! `brigade` within a task when no daemon runs.

use std::fs;

use serde_json::{Value, json};

use crate::story_env::{BRIGADE, StoryEnv};

#[test]
fn an_mcp_server_within_a_task_starts_no_daemon() {
    let story = StoryEnv::new();
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
    fs::write(story.project().join("lines"), lines).unwrap();
    // Its input stays open until it has replied.
    let script = format!(
        "until [ -e go ]; do sleep 0.02; done; \
         (cat lines; until grep -q '\"id\":2' replies; do sleep 0.02; done) | {BRIGADE} mcp > replies; \
         echo ended > ended"
    );
    story.ok(["exec", "-d", "--shell", &script]);
    story.ok(["daemon", "stop"]);
    fs::write(story.project().join("replies"), "").unwrap();
    fs::write(story.project().join("go"), "").unwrap();
    story.file("ended");
    let replies = story.file("replies");
    let replies = replies.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let reply = replies.into_iter().find(|reply| reply["id"] == 2).unwrap();
    let error = &reply["result"]["structuredContent"]["error"];
    assert_eq!(error["kind"], "unavailable", "{reply}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("within a task") && message.contains("daemon start"), "{message}");
    assert_eq!(story.run(["daemon", "status"]).code, 127, "none was started");
}

#[test]
fn a_process_within_a_task_starts_no_daemon_for_another_state_directory() {
    let story = StoryEnv::new();
    let other = story.directory("other").join("state");
    let script = format!("{BRIGADE} --state {} ps", other.display());
    let ran = story.run(["exec", "--shell", &script]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("within a task"), "{ran:?}");
    assert!(!other.exists());
}
