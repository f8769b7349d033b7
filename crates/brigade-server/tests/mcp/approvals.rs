//! Leave that sub-agents ask for: a form at the client, for the task and for all below it.

use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolResponse, ElicitRequestParams, ElicitResult, ElicitationAction, GetTaskParams,
    InputRequest, TaskPayload, UpdateTaskParams,
};
use serde_json::{Value, json};

use crate::support::{Client, Kitchen, Said, asked};
use crate::tasks::{completed, until_over};

/// A helper two levels down touches two files.
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
    let request = asked("spawn_agent", json!({ "task": "Go.", "name": "Boss", "wait": true }));
    match client.service.call_tool_once(request).await.unwrap() {
        CallToolResponse::Task(created) => created.task.task_id,
        other => panic!("no task: {other:?}"),
    }
}

#[tokio::test]
async fn the_form_has_titles_and_asks_for_the_decision_first() {
    let kitchen = Kitchen::playing(TOUCHES);
    let client = kitchen.client_asked_about("cook", "run_process").await;
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

/// The keys and messages of the forms, once there are so many.
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
    panic!("{id} does not ask {count} times");
}

async fn say(client: &Client, id: &str, key: &str, content: Value) {
    let result = ElicitResult::new(ElicitationAction::Accept).with_content(content);
    respond(client, id, key, result).await;
}

async fn respond(client: &Client, id: &str, key: &str, result: ElicitResult) {
    let responses = [(key.to_owned(), serde_json::to_value(result).unwrap())].into();
    client.service.update_task(UpdateTaskParams::new(id, responses)).await.unwrap();
}

#[tokio::test]
async fn the_client_is_asked_for_what_is_below_its_task_also_after_everything_was_killed() {
    let kitchen = Kitchen::playing(TOUCHES);
    let client = kitchen.client_asked_about("cook", "run_process").await;
    let id = begin(&client).await;
    let before = forms(&client, &id, 2).await;
    assert!(before[0].0.starts_with("approval-agent-2-"), "{before:?}");
    assert!(
        before[0]
            .1
            .starts_with("Hand asks for leave: run_process\ncommand │ echo x >> one\ncwd     │ /"),
        "{before:?}"
    );
    kitchen.kill_daemon();
    drop(client);
    let client = kitchen.client_asked_about("cook", "run_process").await;
    let forms = forms(&client, &id, 2).await;
    assert_eq!(forms, before);
    // A form that is put aside changes nothing, and neither does what is no verdict.
    let aside = ElicitResult::new(ElicitationAction::Cancel);
    respond(&client, &id, &forms[0].0, aside).await;
    let wrong =
        ElicitResult::new(ElicitationAction::Accept).with_content(json!({"decision": "maybe"}));
    let wrong = [(forms[0].0.clone(), serde_json::to_value(wrong).unwrap())].into();
    client.service.update_task(UpdateTaskParams::new(&id, wrong)).await.unwrap_err();
    let listed = client.call("list_tasks", json!({})).await;
    assert!(!listed.text.contains("brigade approve"), "it is the helper's: {}", listed.text);
    for (key, _) in &forms {
        say(&client, &id, key, json!({"decision": "once"})).await;
    }
    completed(until_over(&client, &id).await).has("It is done.");
    assert_eq!((kitchen.file("one"), kitchen.file("two")), ("x\n".into(), "x\n".into()));
}

#[tokio::test]
async fn a_form_that_cannot_show_the_whole_call_can_only_deny_it() {
    let long = "x".repeat(5_000);
    let kitchen = Kitchen::playing(&format!(
        "\nagent *\nturn\n  delay 700ms\n  call run_process {{\"command\": \"touch one\", \"env\": \
         {{\"A\": \"{long}\"}}}}\nturn\n  say It is not done.\n"
    ));
    let client = kitchen.client_asked_about("cook", "run_process").await;
    let id = begin(&client).await;
    let (key, message) = forms(&client, &id, 1).await.remove(0);
    assert!(message.contains("\ncommand │ touch one\n"), "{message}");
    assert!(message.contains("it can only be denied here") && message.len() < 2_000, "{message}");
    let yes =
        ElicitResult::new(ElicitationAction::Accept).with_content(json!({"decision": "once"}));
    let yes = [(key.clone(), serde_json::to_value(yes).unwrap())].into();
    let refused = client.service.update_task(UpdateTaskParams::new(&id, yes)).await.unwrap_err();
    assert!(refused.to_string().contains("does not show the whole call"), "{refused}");
    say(&client, &id, &key, json!({"decision": "deny"})).await;
    completed(until_over(&client, &id).await).has("It is not done.");
    assert!(!kitchen.path().join("one").exists());
}

/// A form is answered for the call that it shows.
#[tokio::test]
async fn an_answer_to_another_form_allows_nothing() {
    let kitchen = Kitchen::playing(TOUCHES);
    let client = kitchen.client_asked_about("cook", "run_process").await;
    let id = begin(&client).await;
    let asked = forms(&client, &id, 2).await;
    let (before, digest) = asked[0].0.rsplit_once('-').unwrap();
    let other = asked[1].0.rsplit_once('-').unwrap().1;
    assert_ne!(digest, other);
    say(&client, &id, &format!("{before}-{other}"), json!({"decision": "once"})).await;
    assert_eq!(forms(&client, &id, 2).await, asked, "nothing was allowed");
}

#[tokio::test]
async fn a_denial_has_its_reason_and_nobody_else_is_asked() {
    let kitchen = Kitchen::playing(TOUCHES);
    let client = kitchen.client_asked_about("cook", "run_process").await;
    let id = begin(&client).await;
    let asked = forms(&client, &id, 2).await;
    let other = kitchen.client_asked_about("other", "run_process").await;
    let got = other.service.get_task(GetTaskParams::new(&id)).await.unwrap().task;
    assert!(matches!(got.payload, TaskPayload::Working), "{:?}", got.payload);
    say(&other, &id, &asked[0].0, json!({"decision": "once"})).await;
    let no = json!({"decision": "deny", "reason": "not on a Friday"});
    say(&client, &id, &asked[0].0, no).await;
    respond(&client, &id, &asked[1].0, ElicitResult::new(ElicitationAction::Decline)).await;
    completed(until_over(&client, &id).await).has("It is not done.");
    assert!(!kitchen.path().join("one").exists(), "what another client said counts for nothing");
}

/// The command for the user, in both halves of an answer.
#[track_caller]
fn tells_the_user(said: &Said) {
    said.has("\"Hand\" waits for the user to approve: run_process")
        .has("`brigade approve agent:2 ");
    let command = said.structured["approvals"][0]["user_command"].as_str().unwrap();
    assert!(command.starts_with("brigade approve agent:2 "), "{command}");
    assert_eq!(said.structured["approvals"][0]["address"], "agent:2");
}

#[tokio::test]
async fn an_approval_that_is_needed_below_ends_a_wait_with_what_the_user_has_to_do() {
    let kitchen = Kitchen::playing(TOUCHES);
    let client = kitchen.client_asking("cook", "run_process").await;
    let began = Instant::now();
    let said =
        client.call("spawn_agent", json!({"task": "Go.", "name": "Boss", "wait": true})).await;
    tells_the_user(&said);
    for arguments in [json!({}), json!({"tasks": ["Boss"]}), json!({"mode": "all"})] {
        let waited = client.call("wait_tasks", arguments).await;
        tells_the_user(&waited);
        waited.has("Still running:");
        assert_eq!(waited.structured["timed_out"], false);
        assert_eq!(waited.structured["ended"], json!([]));
    }
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    // Somebody else's wait is not ended by it, and neither is one for other tasks.
    let other = kitchen.client_asking("other", "run_process").await;
    other.call("run_process", json!({"command": "sleep 1", "background": true})).await;
    other.call("wait_tasks", json!({})).await.has("process:3 succeeded");
    client.call("run_process", json!({"command": "sleep 1", "background": true})).await;
    client.call("wait_tasks", json!({"tasks": ["process:4"]})).await.has("process:4 succeeded");
}
