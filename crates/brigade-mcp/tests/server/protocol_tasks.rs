//! Processes as tasks of the MCP protocol.

use std::time::Duration;

use rmcp::ServiceError;
use rmcp::model::{
    CallToolResponse, CallToolResult, CancelTaskParams, ClientCapabilities, GetTaskParams, Task,
    TaskPayload, TaskStatus,
};
use serde_json::{Value, json};

use crate::support::{Client, TestWorkspace, ToolReply, tool_call};

fn knows_tasks() -> ClientCapabilities {
    ClientCapabilities::builder().enable_tasks().build()
}

async fn begin(client: &Client, command: &str) -> Task {
    let request = tool_call("run_process", json!({ "command": command }));
    match client.service.call_tool_once(request).await.unwrap() {
        CallToolResponse::Task(created) => created.task,
        other => panic!("no task: {other:?}"),
    }
}

pub(crate) async fn wait_until_ended(client: &Client, id: &str) -> TaskPayload {
    loop {
        let got = client.service.get_task(GetTaskParams::new(id)).await.unwrap();
        if got.task.status().is_terminal() {
            return got.task.payload;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[track_caller]
pub(crate) fn completed(payload: TaskPayload) -> ToolReply {
    let TaskPayload::Completed { result } = payload else { panic!("{payload:?}") };
    let result: CallToolResult = serde_json::from_value(Value::Object(result)).unwrap();
    ToolReply::of(&result)
}

#[tokio::test]
async fn a_protocol_task_is_found_again_after_a_kill() {
    let workspace = TestWorkspace::new();
    let client = workspace.client_with("cook", knows_tasks()).await;
    let task = begin(&client, "echo begun >> count; sleep 4; echo over; exit 7").await;
    assert_eq!((task.task_id.as_str(), task.status), ("kitchen/process:1", TaskStatus::Working));
    assert!(task.created_at.ends_with('Z') && task.poll_interval_ms.is_some());
    assert_eq!(task.ttl_ms, None, "the task is stored until it is pruned");
    workspace.kill_daemon();
    drop(client);
    let client = workspace.client_with("cook", knows_tasks()).await;
    let got = client.service.get_task(GetTaskParams::new(&task.task_id)).await.unwrap();
    assert_eq!(got.task.status(), TaskStatus::Working);
    assert_eq!(got.task.task.created_at, task.created_at);
    let reply = completed(wait_until_ended(&client, &task.task_id).await);
    reply.has("process:1 failed (exit code 7)").has("over");
    assert_eq!(workspace.file("count"), "begun\n");
    // A second read returns the same, and the result is not delivered again.
    completed(wait_until_ended(&client, &task.task_id).await).has("exit code 7");
    client.call("wait_tasks", json!({})).await.has("nothing to wait for");
}

#[tokio::test]
async fn a_protocol_task_can_be_cancelled() {
    let workspace = TestWorkspace::new();
    let client = workspace.client_with("cook", knows_tasks()).await;
    let task = begin(&client, "sleep 60").await;
    client.service.cancel_task(CancelTaskParams::new(&task.task_id)).await.unwrap();
    assert_eq!(wait_until_ended(&client, &task.task_id).await, TaskPayload::Cancelled);
    // An ended task stays as it is.
    client.service.cancel_task(CancelTaskParams::new(&task.task_id)).await.unwrap();
    let notifications = client.notifications.tasks.clone();
    workspace
        .until("a notification of the end", || {
            notifications.lock().unwrap().iter().any(|task| task.status() == TaskStatus::Cancelled)
        })
        .await;
}

#[tokio::test]
async fn a_short_call_needs_no_protocol_task() {
    let workspace = TestWorkspace::new();
    let client = workspace.client_with("claude-code", knows_tasks()).await;
    client.call("run_process", json!({"command": "echo quick"})).await.has("quick");
    let arguments = json!({"command": "sleep 2", "background": true});
    client.call("run_process", arguments).await.has("brigade --workspace kitchen wait process:2");
}

#[tokio::test]
async fn an_unknown_protocol_task_is_an_invalid_parameter() {
    let workspace = TestWorkspace::new();
    let client = workspace.client_with("cook", knows_tasks()).await;
    for id in ["kitchen/process:9", "nowhere/process:1", "!!", ""] {
        let error = client.service.get_task(GetTaskParams::new(id)).await.unwrap_err();
        let ServiceError::McpError(error) = error else { panic!("{error}") };
        assert_eq!(error.code.0, -32602, "{id}: {error}");
    }
    let plain = workspace.client("plain").await;
    let error = plain.service.get_task(GetTaskParams::new("kitchen/process:9")).await.unwrap_err();
    let ServiceError::McpError(error) = error else { panic!("{error}") };
    assert_eq!(error.code.0, -32021, "{error}");
}
