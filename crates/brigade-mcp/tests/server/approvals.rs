//! Approvals as forms at the client, for its tasks and their descendants.

use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolResponse, ElicitRequestParams, ElicitResult, ElicitationAction, GetTaskParams,
    InputRequest, TaskPayload, UpdateTaskParams,
};
use serde_json::{Value, json};

use crate::protocol_tasks::{completed, wait_until_ended};
use crate::support::{Client, TestWorkspace, ToolReply, tool_call};

/// A script in which the child of an agent writes two files.
const TOUCHES: &str = r#"
agent Boss
turn
  delay 700ms
  call spawn_agent {"name": "Hand", "task": "Touch.", "wait": true}
turn
  when Touched
  say It is done.
turn
  say It is not done.

agent Hand
turn
  call run_process {"command": "echo x >> one"}
  call run_process {"command": "echo x >> two"}
turn
  when not on a Friday
  say I was told why.
turn
  say Touched.
"#;

async fn begin(client: &Client) -> String {
    let request = tool_call("spawn_agent", json!({ "task": "Go.", "name": "Boss", "wait": true }));
    match client.service.call_tool_once(request).await.unwrap() {
        CallToolResponse::Task(created) => created.task.task_id,
        other => panic!("no task: {other:?}"),
    }
}

#[tokio::test]
async fn a_form_has_titles_and_asks_for_the_decision_first() {
    let workspace = TestWorkspace::with_script(TOUCHES);
    let client = workspace.client_with_forms("cook", "run_process").await;
    let id = begin(&client).await;
    forms(&client, &id, 2).await;
    let got = client.service.get_task(GetTaskParams::new(&id)).await.unwrap().task;
    let TaskPayload::InputRequired { input_requests } = got.payload else { panic!("{got:?}") };
    for request in input_requests.values() {
        let form = serde_json::to_value(request).unwrap();
        let schema = &form["params"]["requestedSchema"];
        let fields: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["decision", "reason"], "{form}");
        assert_eq!(schema["properties"]["decision"]["title"], "Decision");
        assert_eq!(schema["properties"]["reason"]["title"], "Reason");
        assert_eq!(schema["required"], json!(["decision"]));
    }
}

/// Waits for this number of forms and returns their keys and messages.
async fn forms(client: &Client, id: &str, count: usize) -> Vec<(String, String)> {
    for _ in 0..600 {
        let got = client.service.get_task(GetTaskParams::new(id)).await.unwrap().task;
        if let TaskPayload::InputRequired { input_requests } = got.payload
            && input_requests.len() == count
        {
            let forms = input_requests.into_iter().map(|(key, request)| {
                let InputRequest::Elicitation(form) = request else { panic!("{request:?}") };
                match form.params {
                    ElicitRequestParams::FormElicitationParams { message, .. } => (key, message),
                    other => panic!("no form: {other:?}"),
                }
            });
            let mut forms: Vec<_> = forms.collect();
            forms.sort();
            return forms;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{id} does not show {count} forms");
}

async fn accept(client: &Client, id: &str, key: &str, content: Value) {
    let result = ElicitResult::new(ElicitationAction::Accept).with_content(content);
    respond(client, id, key, result).await;
}

async fn respond(client: &Client, id: &str, key: &str, result: ElicitResult) {
    let responses = [(key.to_owned(), serde_json::to_value(result).unwrap())].into();
    client.service.update_task(UpdateTaskParams::new(id, responses)).await.unwrap();
}

#[tokio::test]
async fn forms_of_descendants_reach_the_client_also_after_a_kill() {
    let workspace = TestWorkspace::with_script(TOUCHES);
    let client = workspace.client_with_forms("cook", "run_process").await;
    let id = begin(&client).await;
    let before = forms(&client, &id, 2).await;
    assert!(before[0].0.starts_with("approval-agent-2-"), "{before:?}");
    assert!(
        before[0].1.starts_with(
            "Hand asks for approval: run_process\ncommand │ echo x >> one\ncwd     │ /"
        ),
        "{before:?}"
    );
    workspace.kill_daemon();
    drop(client);
    let client = workspace.client_with_forms("cook", "run_process").await;
    let forms = forms(&client, &id, 2).await;
    assert_eq!(forms, before);
    // Neither a cancelled form nor an invalid decision changes anything.
    let cancelled = ElicitResult::new(ElicitationAction::Cancel);
    respond(&client, &id, &forms[0].0, cancelled).await;
    let wrong =
        ElicitResult::new(ElicitationAction::Accept).with_content(json!({"decision": "maybe"}));
    let wrong = [(forms[0].0.clone(), serde_json::to_value(wrong).unwrap())].into();
    client.service.update_task(UpdateTaskParams::new(&id, wrong)).await.unwrap_err();
    let listed = client.call("list_tasks", json!({})).await;
    assert!(
        !listed.text.contains("brigade approve"),
        "the approval belongs to the helper: {}",
        listed.text
    );
    for (key, _) in &forms {
        accept(&client, &id, key, json!({"decision": "once"})).await;
    }
    completed(wait_until_ended(&client, &id).await).has("It is done.");
    assert_eq!((workspace.file("one"), workspace.file("two")), ("x\n".into(), "x\n".into()));
}

#[tokio::test]
async fn a_form_that_cannot_show_the_whole_call_can_only_deny_it() {
    let long = "x".repeat(5_000);
    let workspace = TestWorkspace::with_script(&format!(
        "\nagent *\nturn\n  delay 700ms\n  call run_process {{\"command\": \"touch one\", \"env\": \
         {{\"A\": \"{long}\"}}}}\nturn\n  say It is not done.\n"
    ));
    let client = workspace.client_with_forms("cook", "run_process").await;
    let id = begin(&client).await;
    let (key, message) = forms(&client, &id, 1).await.remove(0);
    assert!(message.contains("\ncommand │ touch one\n"), "{message}");
    assert!(message.contains("it can only be denied here") && message.len() < 2_000, "{message}");
    let yes =
        ElicitResult::new(ElicitationAction::Accept).with_content(json!({"decision": "once"}));
    let yes = [(key.clone(), serde_json::to_value(yes).unwrap())].into();
    let refused = client.service.update_task(UpdateTaskParams::new(&id, yes)).await.unwrap_err();
    assert!(refused.to_string().contains("does not show the whole call"), "{refused}");
    accept(&client, &id, &key, json!({"decision": "deny"})).await;
    completed(wait_until_ended(&client, &id).await).has("It is not done.");
    assert!(!workspace.path().join("one").exists());
}

/// A form decides only the call that it shows.
#[tokio::test]
async fn a_decision_with_the_digest_of_another_form_allows_nothing() {
    let workspace = TestWorkspace::with_script(TOUCHES);
    let client = workspace.client_with_forms("cook", "run_process").await;
    let id = begin(&client).await;
    let shown = forms(&client, &id, 2).await;
    let (before, digest) = shown[0].0.rsplit_once('-').unwrap();
    let other = shown[1].0.rsplit_once('-').unwrap().1;
    assert_ne!(digest, other);
    accept(&client, &id, &format!("{before}-{other}"), json!({"decision": "once"})).await;
    assert_eq!(forms(&client, &id, 2).await, shown, "nothing was allowed");
}

#[tokio::test]
async fn a_denial_has_its_reason_and_no_other_client_can_decide() {
    let workspace = TestWorkspace::with_script(TOUCHES);
    let client = workspace.client_with_forms("cook", "run_process").await;
    let id = begin(&client).await;
    let shown = forms(&client, &id, 2).await;
    let other = workspace.client_with_forms("other", "run_process").await;
    let got = other.service.get_task(GetTaskParams::new(&id)).await.unwrap().task;
    assert!(matches!(got.payload, TaskPayload::Working), "{:?}", got.payload);
    accept(&other, &id, &shown[0].0, json!({"decision": "once"})).await;
    let no = json!({"decision": "deny", "reason": "not on a Friday"});
    accept(&client, &id, &shown[0].0, no).await;
    respond(&client, &id, &shown[1].0, ElicitResult::new(ElicitationAction::Decline)).await;
    completed(wait_until_ended(&client, &id).await).has("It is not done.");
    assert!(
        !workspace.path().join("one").exists(),
        "the decision of another client does not count"
    );
}

/// Checks that both halves of a reply have the command for the user.
#[track_caller]
fn check_user_command(reply: &ToolReply) {
    reply
        .has("\"Hand\" waits for the user to approve: run_process")
        .has("`brigade approve agent:2 ");
    let command = reply.structured["approvals"][0]["user_command"].as_str().unwrap();
    assert!(command.starts_with("brigade approve agent:2 "), "{command}");
    assert_eq!(reply.structured["approvals"][0]["address"], "agent:2");
}

#[tokio::test]
async fn a_pending_approval_of_a_descendant_ends_a_wait_with_the_command_for_the_user() {
    let workspace = TestWorkspace::with_script(TOUCHES);
    let client = workspace.client_asking("cook", "run_process").await;
    let started_at = Instant::now();
    let reply =
        client.call("spawn_agent", json!({"task": "Go.", "name": "Boss", "wait": true})).await;
    check_user_command(&reply);
    for arguments in [json!({}), json!({"tasks": ["Boss"]}), json!({"mode": "all"})] {
        let waited = client.call("wait_tasks", arguments).await;
        check_user_command(&waited);
        waited.has("Still running:");
        assert_eq!(waited.structured["timed_out"], false);
        assert_eq!(waited.structured["ended"], json!([]));
    }
    assert!(started_at.elapsed() < Duration::from_secs(40), "{:?}", started_at.elapsed());
    // The wait of another client does not end by it, and neither does one for other tasks.
    let other = workspace.client_asking("other", "run_process").await;
    other.call("run_process", json!({"command": "sleep 1", "background": true})).await;
    other.call("wait_tasks", json!({})).await.has("process:3 succeeded");
    client.call("run_process", json!({"command": "sleep 1", "background": true})).await;
    client.call("wait_tasks", json!({"tasks": ["process:4"]})).await.has("process:4 succeeded");
}
