//! Tools that the client of a run executes, seen through MCP.

use std::time::Duration;

use brigade_agent::{AgentOverrides, ClientTool};
use brigade_protocol::frames::ClientRole;
use brigade_protocol::requests::RunRequest;
use brigade_protocol::{DaemonConnection as Daemon, StateDir};
use rmcp::model::{
    ClientCapabilities, ElicitRequestParams, ElicitResult, ElicitationAction, GetTaskParams,
    InputRequest, TaskPayload, UpdateTaskParams,
};
use serde_json::json;

use crate::protocol_tasks::{completed, wait_until_ended};
use crate::support::{Client, SESSION, TestWorkspace};

const SHOWS: &str = r#"
agent *
turn
  call open_editor {"file": "soup.md"}
turn
  when on line 12
  say Opened.
"#;

/// Starts a run with a client tool, as a program that talks to the daemon directly.
async fn begin(workspace: &TestWorkspace, client: &Client) {
    client.call("list_tasks", json!({})).await.has("no tasks to show");
    let state_dir = StateDir::new(workspace.state());
    let daemon =
        Daemon::connect(&state_dir, ClientRole::Client("editor".to_owned())).await.unwrap();
    let tool = ClientTool {
        name: "open_editor".into(),
        description: "Opens a file in the editor.".into(),
        parameters: json!({ "type": "object" }),
    };
    let overrides = AgentOverrides { client_tools: vec![tool], ..AgentOverrides::default() };
    let run =
        RunRequest { overrides: Some(Box::new(overrides)), ..RunRequest::new(SESSION, "Show it.") };
    let wire = serde_json::to_value(&run).unwrap();
    assert_eq!(wire["overrides"]["client_tools"][0]["name"], "open_editor");
    assert_eq!(daemon.call(run).await.unwrap().task.address, "agent:1");
}

#[tokio::test]
async fn a_client_tool_call_is_returned_as_text_and_answered_by_a_message() {
    let workspace = TestWorkspace::with_script(SHOWS);
    let client = workspace.client("editor").await;
    begin(&workspace, &client).await;
    let all = json!({"tasks": ["1"]});
    let waited = client.call("wait_tasks", all.clone()).await;
    waited.has("agent:1 waits for its client (question ").has(r#"open_editor {"file":"soup.md"}"#);
    let call = &waited.structured["still_running"][0]["questions"][0]["client_call"];
    assert_eq!(
        (&call["tool"], &call["arguments"]["file"]),
        (&json!("open_editor"), &json!("soup.md"))
    );
    client.call("send_message", json!({"to": "1", "message": "on line 12"})).await;
    client.call("wait_tasks", all).await.has("Opened.");
}

#[tokio::test]
async fn a_task_that_waits_for_its_client_requires_input() {
    let workspace = TestWorkspace::with_script(SHOWS);
    let capabilities = ClientCapabilities::builder().enable_tasks().enable_elicitation().build();
    let client = workspace.client_with("editor", capabilities).await;
    begin(&workspace, &client).await;
    let id = "kitchen/agent:1";
    let (key, request) = loop {
        let got = client.service.get_task(GetTaskParams::new(id)).await.unwrap().task;
        match got.payload {
            TaskPayload::Working => tokio::time::sleep(Duration::from_millis(100)).await,
            TaskPayload::InputRequired { input_requests } => {
                break input_requests.into_iter().next().unwrap();
            }
            other => panic!("{other:?}"),
        }
    };
    let InputRequest::Elicitation(form) = request else { panic!("{request:?}") };
    let ElicitRequestParams::FormElicitationParams { message, .. } = form.params else {
        panic!("no form")
    };
    assert_eq!(message, r#"agent:1 waits for its client: open_editor {"file":"soup.md"}"#);
    let opened = ElicitResult::new(ElicitationAction::Accept);
    let opened =
        serde_json::to_value(opened.with_content(json!({"answer": "on line 12"}))).unwrap();
    client.service.update_task(UpdateTaskParams::new(id, [(key, opened)].into())).await.unwrap();
    completed(wait_until_ended(&client, id).await).has("Opened.");
}
