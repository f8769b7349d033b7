//! Agents of a client: start, messages, questions, stop, transcript, killed daemons.

use std::time::Duration;

use rmcp::model::{CallToolResponse, ClientCapabilities, DetailedTask, Task, TaskStatus};
use serde_json::{Value, json};

use crate::protocol_tasks::{completed, wait_until_ended};
use crate::support::{Client, TestWorkspace, ToolReply, tool_call};

const ASKS: &str = r#"
agent *
turn
  delay 300ms
  call ask_parent {"question": "Red or green?"}
turn
  when green
  say Green it is.
turn
  when declined
  say Then neither.
"#;

#[tokio::test]
async fn an_awaited_result_is_returned_once() {
    let workspace = TestWorkspace::with_script(
        "agent *\nusage input=100 output=20\nturn\n  say Seven mushrooms.\n",
    );
    let client = workspace.client("cook").await;
    let arguments = json!({"task": "Count them.", "name": "Counter", "wait": true});
    let reply = client.call("spawn_agent", arguments).await;
    reply.has("agent:1 \"Counter\" succeeded").has("120 tokens.\nSeven mushrooms.");
    assert_eq!(reply.structured["result"], "Seven mushrooms.");
    assert_eq!(reply.structured["task"], "Count them.");
    assert_eq!(reply.structured["usage"]["tokens"], 120);
    client.call("list_tasks", json!({})).await.has("no tasks to show");
    client.call("wait_tasks", json!({"tasks": ["1"]})).await.has("had been returned before");
}

#[tokio::test]
async fn a_background_agent_is_listed_with_its_activity() {
    let workspace = TestWorkspace::with_script(
        "agent Slow\nusage input=10 output=5\nturn\n  say I look around.\n  call list_tasks\n\
         turn\n  delay 2s\n  say Found it.\nagent *\nturn\n  say Quick.\n",
    );
    let client = workspace.client("claude-code").await;
    let reply = client.call("spawn_agent", json!({"task": "Look.", "name": "Slow"})).await;
    reply.has("agent:1 \"Slow\"").has("brigade --workspace kitchen wait agent:1");
    let listed = client.until("list_tasks", json!({}), "says: I look around.").await;
    listed.has("step 2, ").has("15 tokens").has(": Look.");
    assert_eq!(listed.structured["tasks"][0]["step"], 2);
    assert_eq!(listed.structured["tasks"][0]["last_text"], "I look around.");
    client.call("spawn_agent", json!({"task": "Hurry.", "name": "Quick"})).await;
    let first = client.call("wait_tasks", json!({})).await;
    first.has("agent:2 \"Quick\" succeeded").has("Quick.");
    client.call("wait_tasks", json!({})).await.has("agent:1 \"Slow\" succeeded").has("Found it.");
    client.call("wait_tasks", json!({})).await.has("nothing to wait for");
}

#[tokio::test]
async fn a_message_reaches_a_running_agent_and_resumes_an_ended_one() {
    let workspace = TestWorkspace::with_script(
        "agent *\nturn\n  delay 1s\n  say Soup.\n  call list_tasks\n\
         turn\n  when salt\n  say With salt.\n\
         turn\n  when pepper\n  say With pepper too.\n\
         turn\n  say Without anything.\n",
    );
    let client = workspace.client("cook").await;
    client.call("spawn_agent", json!({"task": "Cook.", "name": "Cook"})).await;
    let salt = json!({"to": "Cook", "message": "more salt"});
    client.call("send_message", salt).await.has("reads it at its next step");
    client.call("wait_tasks", json!({})).await.has("With salt.");
    let pepper = json!({"to": "Cook", "message": "and pepper"});
    let reply = client.call("send_message", pepper).await;
    reply.has("agent:1 had ended and continues");
    assert_eq!(reply.structured["resumed"], true);
    client.call("wait_tasks", json!({"tasks": ["Cook"]})).await.has("With pepper too.");
}

#[tokio::test]
async fn text_of_an_earlier_run_is_not_shown_again() {
    let workspace = TestWorkspace::with_script(
        "agent *\nturn\n  when pepper\n  delay 600s\n  say Never.\nturn\n  say Soup is ready.\n",
    );
    let client = workspace.client("cook").await;
    let run = json!({"task": "Cook.", "name": "Cook", "wait": true});
    client.call("spawn_agent", run).await.has("Soup is ready.");
    let listed = client.call("list_tasks", json!({"state": "all"})).await;
    assert_eq!(listed.structured["tasks"][0]["last_text"], Value::Null, "the result has the text");
    client.call("send_message", json!({"to": "Cook", "message": "pepper"})).await;
    let listed = client.until("list_tasks", json!({}), "thinking").await;
    assert!(!listed.text.contains("Soup"), "{}", listed.text);
    client.call("stop_task", json!({"task": "Cook"})).await;
}

#[tokio::test]
async fn an_interrupting_message_ends_a_model_call() {
    let workspace = TestWorkspace::with_script(
        "agent *\nturn\n  when hurry\n  say Hurried.\nturn\n  delay 600s\n  say Never.\n",
    );
    let client = workspace.client("cook").await;
    client.call("spawn_agent", json!({"task": "Cook.", "name": "Cook"})).await;
    client.until("list_tasks", json!({}), "thinking").await;
    let hurry = json!({"to": "Cook", "message": "hurry", "interrupt": true});
    client.call("send_message", hurry).await.has("reads it at once");
    client.call("wait_tasks", json!({"wait_secs": 30})).await.has("Hurried.");
}

#[tokio::test]
async fn a_message_to_the_parent_is_returned_once_to_the_client_that_started_it() {
    let workspace = TestWorkspace::with_script(
        "agent *\nturn\n  call send_message {\"to\": \"parent\", \"message\": \"Half done.\"}\n\
         turn\n  say Done.\n",
    );
    let client = workspace.client("cook").await;
    client.call("spawn_agent", json!({"task": "Cook.", "name": "Cook"})).await;
    let listed = client.until("list_tasks", json!({}), "agent:1 \"Cook\" says: Half done.").await;
    assert_eq!(listed.structured["notes"][0]["text"], "Half done.");
    let other = workspace.client("other").await;
    let waited = other.call("wait_tasks", json!({"wait_secs": 1})).await;
    assert!(!waited.text.contains("Half done."), "{}", waited.text);
    let waited = client.call("wait_tasks", json!({})).await;
    waited.has("agent:1 \"Cook\" says: Half done.").has("Done.");
    assert_eq!(waited.structured["notes"][0]["from"], "agent:1");
    let again = client.call("wait_tasks", json!({})).await;
    assert!(!again.text.contains("Half done."), "{}", again.text);
}

#[tokio::test]
async fn a_question_is_returned_as_text_and_answered_by_a_message() {
    let workspace = TestWorkspace::with_script(ASKS);
    let client = workspace.client("cook").await;
    let reply = client.call("spawn_agent", json!({"task": "Paint.", "wait": true})).await;
    reply.has("agent:1 ").has("Red or green?").has("send_message, to \"agent:1\"");
    let number = reply.structured["questions"][0]["question"].as_u64().unwrap();
    client.call("list_tasks", json!({})).await.has("Red or green?");
    let waited = client.call("wait_tasks", json!({"mode": "all"})).await;
    waited.has("input is needed").has("Red or green?");
    assert_eq!(waited.structured["timed_out"], false);
    assert_eq!(waited.structured["still_running"][0]["questions"][0]["text"], "Red or green?");
    // The wait of another client does not end by it.
    let other = workspace.client("other").await;
    other.call("wait_tasks", json!({"wait_secs": 1})).await.has("nothing to wait for");
    let wrong = json!({"to": "1", "message": "green", "question": number + 1});
    client.call("send_message", wrong).await.refused("not_found");
    let answer = json!({"to": "1", "message": "green", "question": number});
    client.call("send_message", answer).await.has("question of agent:1 is answered");
    client.call("wait_tasks", json!({})).await.has("Green it is.");
}

#[tokio::test]
async fn a_question_ends_a_pending_wait() {
    let workspace = TestWorkspace::with_script(ASKS);
    let client = workspace.client("cook").await;
    let slow = json!({"command": "sleep 3; echo over", "name": "Slow", "background": true});
    client.call("run_process", slow).await;
    client.call("spawn_agent", json!({"task": "Paint.", "name": "Painter"})).await;
    let all = json!({"tasks": ["Slow", "Painter"], "mode": "all"});
    client
        .call("wait_tasks", all.clone())
        .await
        .has("agent:2 asks (question ")
        .has("\"Slow\" running");
    client.call("send_message", json!({"to": "Painter", "message": "green"})).await;
    client.call("wait_tasks", all).await.has("over").has("Green it is.");
}

async fn begin(client: &Client, task: &str) -> Task {
    let request = tool_call("spawn_agent", json!({ "task": task, "wait": true }));
    match client.service.call_tool_once(request).await.unwrap() {
        CallToolResponse::Task(created) => created.task,
        other => panic!("no task: {other:?}"),
    }
}

fn with_forms() -> ClientCapabilities {
    ClientCapabilities::builder().enable_tasks().enable_elicitation().build()
}

#[tokio::test]
async fn a_protocol_task_completes_with_the_question_for_the_model() {
    let workspace = TestWorkspace::with_script(&ASKS.replace("300ms", "900ms"));
    let client = workspace.client_with("cook", with_forms()).await;
    let task = begin(&client, "Paint.").await;
    assert_eq!(task.task_id, "kitchen/agent:1");
    let asks = |reply: &ToolReply| {
        reply.has("Red or green?").has("send_message, to \"agent:1\"").address()
    };
    let reply = completed(wait_until_ended(&client, &task.task_id).await);
    assert_eq!(asks(&reply), "agent:1");
    let notifications = client.notifications.tasks.clone();
    let is_completed =
        || notifications.lock().unwrap().iter().any(|t| t.status() == TaskStatus::Completed);
    workspace.until("a notification of the question", is_completed).await;
    let no_form = |t: &DetailedTask| t.status() != TaskStatus::InputRequired;
    assert!(notifications.lock().unwrap().iter().all(no_form), "no form is shown to the user");
    workspace.kill_daemon();
    drop(client);
    let client = workspace.client_with("cook", with_forms()).await;
    asks(&completed(wait_until_ended(&client, &task.task_id).await));
    client.call("send_message", json!({"to": "1", "message": "green"})).await;
    client.call("wait_tasks", json!({"tasks": ["1"]})).await.has("Green it is.");
}

#[tokio::test]
async fn an_immediate_question_is_the_reply() {
    let workspace = TestWorkspace::with_script(&ASKS.replace("  delay 300ms\n", ""));
    let client = workspace.client_with("cook", with_forms()).await;
    let reply = client.call("spawn_agent", json!({"task": "Paint.", "wait": true})).await;
    reply.has("Red or green?").has("send_message");
}

#[tokio::test]
async fn a_client_without_forms_gets_the_question_instead_of_a_task() {
    let workspace = TestWorkspace::with_script(ASKS);
    let knows_tasks = ClientCapabilities::builder().enable_tasks().build();
    let client = workspace.client_with("cook", knows_tasks).await;
    let reply = client.call("spawn_agent", json!({"task": "Paint.", "wait": true})).await;
    reply.has("Red or green?").has("send_message");
}

#[tokio::test]
async fn a_stop_ends_a_hanging_agent() {
    let workspace = TestWorkspace::with_script("agent *\nturn\n  fault hang\n  say never\n");
    let client = workspace.client("cook").await;
    client.call("spawn_agent", json!({"task": "Hang.", "name": "Stuck"})).await;
    let stop = json!({"task": "Stuck", "reason": "enough"});
    client.call("stop_task", stop).await.has("agent:1 \"Stuck\" cancelled");
    client.call("wait_tasks", json!({})).await.has("cancelled");
}

#[tokio::test]
async fn a_transcript_is_read_in_parts() {
    let workspace = TestWorkspace::with_script(
        "agent *\nturn\n  say Grüße, I look.\n  call list_tasks\nturn\n  say There was nothing.\n",
    );
    let client = workspace.client("cook").await;
    client.call("spawn_agent", json!({"task": "Look around.", "wait": true})).await.has("nothing.");
    let read = |arguments: Value| client.call("read_output", arguments);
    let whole = read(json!({"task": "1", "from": 0})).await;
    whole.has("[task]\n  Look around.").has("-> list_tasks").has("  There was nothing.");
    let total = whole.structured["total_bytes"].as_u64().unwrap();
    let mut parts = String::new();
    let mut from = 0;
    while from < total {
        let part = read(json!({"task": "1", "from": from, "max_bytes": 7})).await;
        parts.push_str(&part.output());
        from = part.structured["next"].as_u64().unwrap();
    }
    assert_eq!(parts, whole.output());
    let end = read(json!({"task": "1", "max_bytes": 10})).await;
    assert_eq!(end.output(), " nothing.\n");
    let found = read(json!({"task": "1", "pattern": "^ *There"})).await;
    found.has(":   There was nothing.").has("1 line matches");
    read(json!({"task": "1", "pattern": "("})).await.refused("invalid").has("pattern");
    read(json!({"task": "1", "stream": "stderr"})).await.refused("invalid").has("`stream`");
}

#[tokio::test]
async fn invalid_arguments_are_named_and_start_nothing() {
    let workspace = TestWorkspace::with_script("agent *\nturn\n  say Done.\n");
    let client = workspace.client("cook").await;
    for (arguments, kind, part) in [
        (json!({}), "invalid", "missing argument `task`"),
        (json!({"task": " "}), "invalid", "blank"),
        (json!({"task": "x", "tools": []}), "invalid", "unknown argument `tools`"),
        (json!({"task": "x", "wait": "yes"}), "invalid", "`wait`"),
        (json!({"task": "x", "config": "y"}), "invalid", "`config`"),
        (json!({"task": "x", "config": {"a": 1}}), "invalid", "no settings"),
        (json!({"task": "x", "budget": {"dollars": -1}}), "invalid", "`budget`"),
        (json!({"task": "x", "budget": {"euros": 1}}), "invalid", "`euros`"),
        (json!({"task": "x", "agent": "nobody"}), "not_found", "nobody"),
        (json!({"task": "x", "name": "all"}), "invalid", "reserved"),
        (json!({"task": "x", "result_schema": {"type": 7}}), "invalid", "schema"),
    ] {
        client.call("spawn_agent", arguments).await.refused(kind).has(part);
    }
    let all = client.call("list_tasks", json!({"state": "all"})).await;
    assert_eq!(all.text, "There are no tasks.");
    let keyed = json!({"task": "x", "key": "once", "wait": true});
    let first = client.call("spawn_agent", keyed.clone()).await;
    assert_eq!(first.address(), client.call("spawn_agent", keyed).await.address());
    client.call("spawn_agent", json!({"task": "y", "key": "once"})).await.refused("conflict");
    let close = json!({"to": "1", "close": true});
    client.call("send_message", close).await.refused("invalid").has("no input to close");
    let blank = json!({"to": "1", "message": " "});
    client.call("send_message", blank).await.refused("invalid").has("blank");
}

#[tokio::test]
async fn without_a_model_or_its_key_the_refusal_says_which_setting_is_missing() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
    let reply = client.call("spawn_agent", json!({"task": "x"})).await;
    reply.refused("invalid").has("names no model").has("set `model` in the configuration");
    if std::env::var_os("ANTHROPIC_API_KEY").is_none() {
        let arguments = json!({"task": "x", "model": "anthropic/claude-opus-4-5"});
        let reply = client.call("spawn_agent", arguments).await;
        reply.refused("invalid").has("no key for anthropic").has("ANTHROPIC_API_KEY");
    }
    let file = json!({"task": "x", "model": "script:/etc/passwd"});
    client.call("spawn_agent", file).await.refused("invalid").has("is not provider/model");
    let all = client.call("list_tasks", json!({"state": "all"})).await;
    assert_eq!(all.text, "There are no tasks.");
}

#[tokio::test]
async fn processes_run_only_if_a_rule_allows_them() {
    let script =
        "agent *\nturn\n  call run_process {\"command\": \"touch made\"}\nturn\n  say Done.\n";
    let workspace = TestWorkspace::with_script(script);
    let run = json!({"task": "Make it.", "wait": true});
    let careful = workspace.client("careful").await;
    careful.call("spawn_agent", run.clone()).await.has("Done.");
    assert!(!workspace.path().join("made").exists());
    let allowing = workspace.client_allowing("allowing", "run_process(touch *)").await;
    allowing.call("spawn_agent", run).await.has("Done.");
    assert!(workspace.path().join("made").exists(), "the file is in the workspace");
}

#[tokio::test]
async fn agents_survive_a_killed_daemon() {
    let workspace = TestWorkspace::with_script(
        "agent Boss\n\
         turn\n  call spawn_agent {\"name\": \"Helper\", \"task\": \"Look.\", \"wait\": true}\n\
         turn\n  when three mushrooms\n  say The helper found three.\n\
         agent Helper\nturn\n  delay 2s\n  say three mushrooms\n",
    );
    let client = workspace.client("cook").await;
    let call = client.call("spawn_agent", json!({"task": "Go.", "name": "Boss", "wait": true}));
    let kills = async {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            workspace.kill_daemon();
        }
    };
    let (reply, ()) = tokio::join!(call, kills);
    reply.has("agent:1 \"Boss\" succeeded").has("The helper found three.");
    client.call("wait_tasks", json!({})).await.has("nothing to wait for");
    let all = client.call("list_tasks", json!({"state": "all"})).await;
    assert_eq!(all.structured["total"], 1, "{}", all.text);
    let read = client.call("read_output", json!({"task": "1", "from": 0})).await;
    assert_eq!(read.text.matches("The helper found three.").count(), 1, "{}", read.text);
}
