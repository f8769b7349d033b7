//! Several conversations of one client in one workspace.

use serde_json::{Value, json};

use crate::raw_messages::RawClient;
use crate::support::TestWorkspace;

/// Calls a tool and returns the structured content.
fn call(raw: &mut RawClient, id: u64, tool: &str, arguments: Value) -> Value {
    let response = raw.request(id, "tools/call", json!({"name": tool, "arguments": arguments}));
    response["result"]["structuredContent"].clone()
}

fn ended(waited: &Value) -> Vec<&str> {
    let ended = waited["ended"].as_array().unwrap();
    ended.iter().map(|one| one["address"].as_str().unwrap()).collect()
}

fn bridge(workspace: &TestWorkspace) -> RawClient {
    let mut raw = RawClient::new(workspace);
    raw.hello("2025-06-18");
    raw
}

#[tokio::test]
async fn each_conversation_of_a_client_gets_its_own_results() {
    let workspace = TestWorkspace::new();
    let [mut first, mut second] = [bridge(&workspace), bridge(&workspace)];
    let run = |text: &str| json!({"command": format!("echo {text}"), "background": true});
    assert_eq!(call(&mut first, 2, "run_process", run("one"))["address"], "process:1");
    assert_eq!(call(&mut second, 2, "run_process", run("two"))["address"], "process:2");
    workspace.until("the daemon runs", || workspace.daemon_pid().is_some()).await;
    let all = json!({"mode": "all"});
    let waited = call(&mut second, 3, "wait_tasks", all.clone());
    assert_eq!(ended(&waited), ["process:2"], "{waited}");
    let listed = call(&mut second, 4, "list_tasks", json!({}));
    assert_eq!(listed["tasks"][0]["address"], "process:1", "{listed}");
    assert_eq!(listed["tasks"][0]["other_conversation"], true, "{listed}");
    let waited = call(&mut first, 3, "wait_tasks", all);
    assert_eq!(ended(&waited), ["process:1"], "{waited}");
}

#[tokio::test]
async fn conversations_keep_their_results_when_the_daemon_is_killed() {
    let workspace = TestWorkspace::new();
    let [mut first, mut second] = [bridge(&workspace), bridge(&workspace)];
    let run = |text: &str| json!({"command": format!("sleep 1; echo {text}"), "background": true});
    for (at, raw) in [&mut first, &mut second].into_iter().enumerate() {
        call(raw, 2, "run_process", run(&at.to_string()));
    }
    workspace.kill_daemon();
    // The next daemon has not seen the first conversation when the second one waits.
    let all = json!({"mode": "all"});
    let waited = call(&mut second, 3, "wait_tasks", all.clone());
    assert_eq!(ended(&waited), ["process:2"], "{waited}");
    workspace.kill_daemon();
    let waited = call(&mut second, 4, "wait_tasks", all.clone());
    assert_eq!(ended(&waited), Vec::<&str>::new(), "{waited}");
    let waited = call(&mut first, 3, "wait_tasks", all);
    assert_eq!(ended(&waited), ["process:1"], "{waited}");
}

#[tokio::test]
async fn questions_and_messages_go_to_the_conversation_that_started_the_agent() {
    let workspace = TestWorkspace::with_script(
        "agent *\nturn\n  call send_message {\"to\": \"parent\", \"message\": \"Half done.\"}\n\
         turn\n  call ask_parent {\"question\": \"Red or green?\"}\nturn\n  say Done.\n",
    );
    let first = workspace.client("cook").await;
    let second = workspace.client("cook").await;
    first.call("spawn_agent", json!({"task": "Paint.", "name": "Painter"})).await;
    first.until("list_tasks", json!({}), "Red or green?").await;
    // A question to another conversation does not end a wait either.
    let slow = json!({"command": "sleep 1", "background": true});
    second.call("run_process", slow).await;
    let reply = second.call("wait_tasks", json!({})).await;
    reply.has("process:2 succeeded");
    assert!(!reply.text.contains("Half done."), "{}", reply.text);
    assert_eq!(reply.structured["still_running"], json!([]), "{}", reply.text);
    let reply = first.call("wait_tasks", json!({})).await;
    reply.has("\"Painter\" says: Half done.").has("Red or green?");
}
