//! Several conversations of one client in one workspace.

use serde_json::{Value, json};

use crate::rough::Raw;
use crate::support::Kitchen;

/// What a tool says to a bridge that is a process of its own.
fn call(raw: &mut Raw, id: u64, tool: &str, arguments: Value) -> Value {
    let heard = raw.ask(id, "tools/call", json!({"name": tool, "arguments": arguments}));
    heard["result"]["structuredContent"].clone()
}

fn ended(waited: &Value) -> Vec<&str> {
    let ended = waited["ended"].as_array().unwrap();
    ended.iter().map(|one| one["address"].as_str().unwrap()).collect()
}

fn bridge(kitchen: &Kitchen) -> Raw {
    let mut raw = Raw::new(kitchen);
    raw.hello("2025-06-18");
    raw
}

#[tokio::test]
async fn two_conversations_of_one_client_take_their_own_results() {
    let kitchen = Kitchen::new();
    let [mut first, mut second] = [bridge(&kitchen), bridge(&kitchen)];
    let run = |what: &str| json!({"command": format!("echo {what}"), "background": true});
    assert_eq!(call(&mut first, 2, "run_process", run("one"))["address"], "process:1");
    assert_eq!(call(&mut second, 2, "run_process", run("two"))["address"], "process:2");
    kitchen.until("both", || kitchen.daemon_pid().is_some()).await;
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
    let kitchen = Kitchen::new();
    let [mut first, mut second] = [bridge(&kitchen), bridge(&kitchen)];
    let run = |what: &str| json!({"command": format!("sleep 1; echo {what}"), "background": true});
    for (at, raw) in [&mut first, &mut second].into_iter().enumerate() {
        call(raw, 2, "run_process", run(&at.to_string()));
    }
    kitchen.kill_daemon();
    // The next daemon has not seen the first conversation yet when the second asks.
    let all = json!({"mode": "all"});
    let waited = call(&mut second, 3, "wait_tasks", all.clone());
    assert_eq!(ended(&waited), ["process:2"], "{waited}");
    kitchen.kill_daemon();
    let waited = call(&mut second, 4, "wait_tasks", all.clone());
    assert_eq!(ended(&waited), Vec::<&str>::new(), "{waited}");
    let waited = call(&mut first, 3, "wait_tasks", all);
    assert_eq!(ended(&waited), ["process:1"], "{waited}");
}

#[tokio::test]
async fn questions_and_messages_go_to_the_conversation_that_started_their_sender() {
    let kitchen = Kitchen::playing(
        "agent *\nturn\n  call send_message {\"to\": \"parent\", \"message\": \"Half done.\"}\n\
         turn\n  call ask_parent {\"question\": \"Red or green?\"}\nturn\n  say Done.\n",
    );
    let first = kitchen.client("cook").await;
    let second = kitchen.client("cook").await;
    first.call("spawn_agent", json!({"task": "Paint.", "name": "Painter"})).await;
    first.until("list_tasks", json!({}), "Red or green?").await;
    // A question that is none of its own does not end a wait either.
    let slow = json!({"command": "sleep 1", "background": true});
    second.call("run_process", slow).await;
    let said = second.call("wait_tasks", json!({})).await;
    said.has("process:2 succeeded");
    assert!(!said.text.contains("Half done."), "{}", said.text);
    assert_eq!(said.structured["still_running"], json!([]), "{}", said.text);
    let said = first.call("wait_tasks", json!({})).await;
    said.has("\"Painter\" says: Half done.").has("Red or green?");
}
