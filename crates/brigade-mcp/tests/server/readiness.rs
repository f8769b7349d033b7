//! `run_process` with `ready`, and `wait_tasks` until it is.

use serde_json::json;

use crate::support::TestWorkspace;

#[tokio::test]
async fn a_wait_until_ready_takes_no_result() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
    let command = "until test -e go; do sleep 0.02; done; echo listening; \
                   until test -e stop; do sleep 0.02; done; echo bye; exit 3";
    let start = json!({"command": command, "background": true, "ready": {"output": "^listening$"}});
    client.call("run_process", start).await.has("process:1 running");
    let ready = |secs: u32| json!({"tasks": ["1"], "until": "ready", "wait_secs": secs});
    let early = client.call("wait_tasks", ready(0)).await;
    early.has("No result was taken").has("Still running:\nprocess:1");
    assert_eq!(early.structured["timed_out"], true);
    std::fs::write(workspace.path().join("go"), "").unwrap();
    let reply = client.call("wait_tasks", ready(40)).await;
    reply.has("1 task is ready.").has("process:1 running (ready)");
    assert_eq!(reply.structured["ready"][0]["address"], "process:1");
    client.call("list_tasks", json!({})).await.has("process:1 running (ready)");
    std::fs::write(workspace.path().join("stop"), "").unwrap();
    let ended = client.call("wait_tasks", json!({"tasks": ["1"]})).await;
    ended.has("process:1 failed (exit code 3)").has("bye");
}

#[tokio::test]
async fn a_process_that_ends_before_it_is_ready_is_shown_with_its_output() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
    let start = json!({
        "command": "echo cannot bind; exit 5", "background": true, "ready": {"port": 65_431}
    });
    client.call("run_process", start).await;
    let wait = json!({"tasks": ["1"], "until": "ready"});
    let reply = client.call("wait_tasks", wait).await;
    reply.has("1 task ended before it was ready. No result was taken.");
    reply.has("process:1 failed (exit code 5)").has("cannot bind");
    let result = client.call("wait_tasks", json!({"tasks": ["1"]})).await;
    assert!(!result.text.contains("returned before"), "{}", result.text);
}

#[tokio::test]
async fn wrong_arguments_are_refused_with_the_correct_form() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
    for ready in [json!({}), json!({"output": "a", "port": 1})] {
        let call = json!({"command": "true", "ready": ready});
        client.call("run_process", call).await.refused("invalid").has("exactly one");
    }
    let call = json!({"command": "true", "ready": {"output": "("}});
    client.call("run_process", call).await.refused("invalid").has("the pattern is wrong");
    client.call("wait_tasks", json!({"until": "ready"})).await.refused("invalid").has("`tasks`");
    client.call("run_process", json!({"command": "sleep 60", "background": true})).await;
    let wait = json!({"tasks": ["1"], "until": "ready"});
    client.call("wait_tasks", wait).await.refused("invalid").has("without a readiness check");
}
