//! Runs as tasks of the protocol.

use std::time::Duration;

use rmcp::ServiceError;
use rmcp::model::{
    CallToolResponse, CallToolResult, CancelTaskParams, ClientCapabilities, GetTaskParams, Task,
    TaskPayload, TaskStatus,
};
use serde_json::{Value, json};

use crate::support::{Client, Kitchen, Said, asked};

fn knows_tasks() -> ClientCapabilities {
    ClientCapabilities::builder().enable_tasks().build()
}

async fn begin(client: &Client, command: &str) -> Task {
    let request = asked("run_process", json!({ "command": command }));
    match client.service.call_tool_once(request).await.unwrap() {
        CallToolResponse::Task(created) => created.task,
        other => panic!("no task: {other:?}"),
    }
}

pub(crate) async fn until_over(client: &Client, id: &str) -> TaskPayload {
    loop {
        let got = client.service.get_task(GetTaskParams::new(id)).await.unwrap();
        if got.task.status().is_terminal() {
            return got.task.payload;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[track_caller]
pub(crate) fn completed(payload: TaskPayload) -> Said {
    let TaskPayload::Completed { result } = payload else { panic!("{payload:?}") };
    let result: CallToolResult = serde_json::from_value(Value::Object(result)).unwrap();
    Said::of(&result)
}

#[tokio::test]
async fn a_task_is_stored_before_its_handle_and_found_after_everything_was_killed() {
    let kitchen = Kitchen::new();
    let client = kitchen.client_with("cook", knows_tasks()).await;
    let task = begin(&client, "echo begun >> count; sleep 4; echo over; exit 7").await;
    assert_eq!((task.task_id.as_str(), task.status), ("kitchen/process:1", TaskStatus::Working));
    assert!(task.created_at.ends_with('Z') && task.poll_interval_ms.is_some());
    assert_eq!(task.ttl_ms, None, "kept until it is pruned");
    kitchen.kill_daemon();
    drop(client);
    let client = kitchen.client_with("cook", knows_tasks()).await;
    let got = client.service.get_task(GetTaskParams::new(&task.task_id)).await.unwrap();
    assert_eq!(got.task.status(), TaskStatus::Working);
    assert_eq!(got.task.task.created_at, task.created_at);
    let said = completed(until_over(&client, &task.task_id).await);
    said.has("process:1 failed (exit code 7)").has("over");
    assert_eq!(kitchen.file("count"), "begun\n");
    // Asked again it is the same, and it is not told a second time.
    completed(until_over(&client, &task.task_id).await).has("exit code 7");
    client.call("wait_tasks", json!({})).await.has("nothing to wait for");
}

#[tokio::test]
async fn a_task_can_be_cancelled() {
    let kitchen = Kitchen::new();
    let client = kitchen.client_with("cook", knows_tasks()).await;
    let task = begin(&client, "sleep 60").await;
    client.service.cancel_task(CancelTaskParams::new(&task.task_id)).await.unwrap();
    assert_eq!(until_over(&client, &task.task_id).await, TaskPayload::Cancelled);
    // What is over stays as it is.
    client.service.cancel_task(CancelTaskParams::new(&task.task_id)).await.unwrap();
    let heard = client.heard.tasks.clone();
    kitchen
        .until("word of the end", || {
            heard.lock().unwrap().iter().any(|task| task.status() == TaskStatus::Cancelled)
        })
        .await;
}

#[tokio::test]
async fn what_ends_at_once_needs_no_task() {
    let kitchen = Kitchen::new();
    let client = kitchen.client_with("claude-code", knows_tasks()).await;
    client.call("run_process", json!({"command": "echo quick"})).await.has("quick");
    let arguments = json!({"command": "sleep 2", "background": true});
    client.call("run_process", arguments).await.has("brigade --workspace kitchen wait process:2");
}

#[tokio::test]
async fn an_unknown_task_is_a_wrong_parameter() {
    let kitchen = Kitchen::new();
    let client = kitchen.client_with("cook", knows_tasks()).await;
    for id in ["kitchen/process:9", "nowhere/process:1", "!!", ""] {
        let error = client.service.get_task(GetTaskParams::new(id)).await.unwrap_err();
        let ServiceError::McpError(error) = error else { panic!("{error}") };
        assert_eq!(error.code.0, -32602, "{id}: {error}");
    }
    let plain = kitchen.client("plain").await;
    let error = plain.service.get_task(GetTaskParams::new("kitchen/process:9")).await.unwrap_err();
    let ServiceError::McpError(error) = error else { panic!("{error}") };
    assert_eq!(error.code.0, -32021, "{error}");
}
