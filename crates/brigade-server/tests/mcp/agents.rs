//! Sub-agents: started, steered, asked back, stopped, read, killed in the middle.

use std::time::Duration;

use rmcp::model::{CallToolResponse, ClientCapabilities, DetailedTask, Task, TaskStatus};
use serde_json::{Value, json};

use crate::support::{Client, Kitchen, Said, asked};
use crate::tasks::{completed, until_over};

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
async fn a_sub_agent_is_waited_for_and_told_once() {
    let kitchen =
        Kitchen::playing("agent *\nusage input=100 output=20\nturn\n  say Seven mushrooms.\n");
    let client = kitchen.client("cook").await;
    let arguments = json!({"task": "Count them.", "name": "Counter", "wait": true});
    let said = client.call("spawn_agent", arguments).await;
    said.has("agent:1 \"Counter\" succeeded").has("120 tokens.\nSeven mushrooms.");
    assert_eq!(said.structured["result"], "Seven mushrooms.");
    assert_eq!(said.structured["task"], "Count them.");
    assert_eq!(said.structured["usage"]["tokens"], 120);
    client.call("list_tasks", json!({})).await.has("no tasks to show");
    client.call("wait_tasks", json!({"tasks": ["1"]})).await.has("had been returned before");
}

#[tokio::test]
async fn in_the_background_it_is_listed_with_what_it_is_at() {
    let kitchen = Kitchen::playing(
        "agent Slow\nusage input=10 output=5\nturn\n  say I look around.\n  call list_tasks\n\
         turn\n  delay 2s\n  say Found it.\nagent *\nturn\n  say Quick.\n",
    );
    let client = kitchen.client("claude-code").await;
    let said = client.call("spawn_agent", json!({"task": "Look.", "name": "Slow"})).await;
    said.has("agent:1 \"Slow\"").has("brigade --workspace kitchen wait agent:1");
    let listed = client.until("list_tasks", json!({}), "says: I look around.").await;
    listed.has("step 2, ").has("15 tokens").has(": Look.");
    assert_eq!(listed.structured["tasks"][0]["step"], 2);
    assert_eq!(listed.structured["tasks"][0]["last_words"], "I look around.");
    client.call("spawn_agent", json!({"task": "Hurry.", "name": "Quick"})).await;
    let first = client.call("wait_tasks", json!({})).await;
    first.has("agent:2 \"Quick\" succeeded").has("Quick.");
    client.call("wait_tasks", json!({})).await.has("agent:1 \"Slow\" succeeded").has("Found it.");
    client.call("wait_tasks", json!({})).await.has("nothing to wait for");
}

#[tokio::test]
async fn a_message_steers_it_and_wakes_it_after_its_end() {
    let kitchen = Kitchen::playing(
        "agent *\nturn\n  delay 1s\n  say Soup.\n  call list_tasks\n\
         turn\n  when salt\n  say With salt.\n\
         turn\n  when pepper\n  say With pepper too.\n\
         turn\n  say Without anything.\n",
    );
    let client = kitchen.client("cook").await;
    client.call("spawn_agent", json!({"task": "Cook.", "name": "Cook"})).await;
    let salt = json!({"to": "Cook", "message": "more salt"});
    client.call("send_message", salt).await.has("reads it at its next step");
    client.call("wait_tasks", json!({})).await.has("With salt.");
    let pepper = json!({"to": "Cook", "message": "and pepper"});
    let said = client.call("send_message", pepper).await;
    said.has("agent:1 had ended and continues");
    assert_eq!(said.structured["resumed"], true);
    client.call("wait_tasks", json!({"tasks": ["Cook"]})).await.has("With pepper too.");
}

#[tokio::test]
async fn words_of_an_earlier_run_are_not_shown_again() {
    let kitchen = Kitchen::playing(
        "agent *\nturn\n  when pepper\n  delay 600s\n  say Never.\nturn\n  say Soup is ready.\n",
    );
    let client = kitchen.client("cook").await;
    let run = json!({"task": "Cook.", "name": "Cook", "wait": true});
    client.call("spawn_agent", run).await.has("Soup is ready.");
    let listed = client.call("list_tasks", json!({"state": "all"})).await;
    assert_eq!(listed.structured["tasks"][0]["last_words"], Value::Null, "its result has them");
    client.call("send_message", json!({"to": "Cook", "message": "pepper"})).await;
    let listed = client.until("list_tasks", json!({}), "thinking").await;
    assert!(!listed.text.contains("Soup"), "{}", listed.text);
    client.call("stop_task", json!({"task": "Cook"})).await;
}

#[tokio::test]
async fn an_interrupting_message_is_heard_within_a_model_call() {
    let kitchen = Kitchen::playing(
        "agent *\nturn\n  when hurry\n  say Hurried.\nturn\n  delay 600s\n  say Never.\n",
    );
    let client = kitchen.client("cook").await;
    client.call("spawn_agent", json!({"task": "Cook.", "name": "Cook"})).await;
    client.until("list_tasks", json!({}), "thinking").await;
    let hurry = json!({"to": "Cook", "message": "hurry", "interrupt": true});
    client.call("send_message", hurry).await.has("reads it at once");
    client.call("wait_tasks", json!({"wait_secs": 30})).await.has("Hurried.");
}

#[tokio::test]
async fn what_it_says_on_the_way_is_told_once_to_whoever_started_it() {
    let kitchen = Kitchen::playing(
        "agent *\nturn\n  call send_message {\"to\": \"parent\", \"message\": \"Half done.\"}\n\
         turn\n  say Done.\n",
    );
    let client = kitchen.client("cook").await;
    client.call("spawn_agent", json!({"task": "Cook.", "name": "Cook"})).await;
    let listed = client.until("list_tasks", json!({}), "agent:1 \"Cook\" says: Half done.").await;
    assert_eq!(listed.structured["notes"][0]["text"], "Half done.");
    let other = kitchen.client("other").await;
    let heard = other.call("wait_tasks", json!({"wait_secs": 1})).await;
    assert!(!heard.text.contains("Half done."), "{}", heard.text);
    let waited = client.call("wait_tasks", json!({})).await;
    waited.has("agent:1 \"Cook\" says: Half done.").has("Done.");
    assert_eq!(waited.structured["notes"][0]["from"], "agent:1");
    let again = client.call("wait_tasks", json!({})).await;
    assert!(!again.text.contains("Half done."), "{}", again.text);
}

#[tokio::test]
async fn a_question_is_told_as_text_and_answered_by_a_message() {
    let kitchen = Kitchen::playing(ASKS);
    let client = kitchen.client("cook").await;
    let said = client.call("spawn_agent", json!({"task": "Paint.", "wait": true})).await;
    said.has("agent:1 ").has("Red or green?").has("send_message, to \"agent:1\"");
    let number = said.structured["questions"][0]["question"].as_u64().unwrap();
    client.call("list_tasks", json!({})).await.has("Red or green?");
    let waited = client.call("wait_tasks", json!({"mode": "all"})).await;
    waited.has("input is needed").has("Red or green?");
    assert_eq!(waited.structured["timed_out"], false);
    assert_eq!(waited.structured["still_running"][0]["questions"][0]["text"], "Red or green?");
    // Somebody else's wait is not ended by it.
    let other = kitchen.client("other").await;
    other.call("wait_tasks", json!({"wait_secs": 1})).await.has("nothing to wait for");
    let wrong = json!({"to": "1", "message": "green", "question": number + 1});
    client.call("send_message", wrong).await.refused("not_found");
    let answer = json!({"to": "1", "message": "green", "question": number});
    client.call("send_message", answer).await.has("question of agent:1 is answered");
    client.call("wait_tasks", json!({})).await.has("Green it is.");
}

#[tokio::test]
async fn a_wait_that_has_begun_is_ended_by_a_question() {
    let kitchen = Kitchen::playing(ASKS);
    let client = kitchen.client("cook").await;
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
    let request = asked("spawn_agent", json!({ "task": task, "wait": true }));
    match client.service.call_tool_once(request).await.unwrap() {
        CallToolResponse::Task(created) => created.task,
        other => panic!("no task: {other:?}"),
    }
}

fn can_be_asked() -> ClientCapabilities {
    ClientCapabilities::builder().enable_tasks().enable_elicitation().build()
}

#[tokio::test]
async fn a_task_that_asks_is_over_with_the_question_for_the_model() {
    let kitchen = Kitchen::playing(&ASKS.replace("300ms", "900ms"));
    let client = kitchen.client_with("cook", can_be_asked()).await;
    let task = begin(&client, "Paint.").await;
    assert_eq!(task.task_id, "kitchen/agent:1");
    let asks =
        |said: &Said| said.has("Red or green?").has("send_message, to \"agent:1\"").address();
    let said = completed(until_over(&client, &task.task_id).await);
    assert_eq!(asks(&said), "agent:1");
    let heard = client.heard.tasks.clone();
    let is_over = || heard.lock().unwrap().iter().any(|t| t.status() == TaskStatus::Completed);
    kitchen.until("word of the question", is_over).await;
    let no_form = |t: &DetailedTask| t.status() != TaskStatus::InputRequired;
    assert!(heard.lock().unwrap().iter().all(no_form), "the user was asked");
    kitchen.kill_daemon();
    drop(client);
    let client = kitchen.client_with("cook", can_be_asked()).await;
    asks(&completed(until_over(&client, &task.task_id).await));
    client.call("send_message", json!({"to": "1", "message": "green"})).await;
    client.call("wait_tasks", json!({"tasks": ["1"]})).await.has("Green it is.");
}

#[tokio::test]
async fn a_question_that_comes_at_once_is_the_answer() {
    let kitchen = Kitchen::playing(&ASKS.replace("  delay 300ms\n", ""));
    let client = kitchen.client_with("cook", can_be_asked()).await;
    let said = client.call("spawn_agent", json!({"task": "Paint.", "wait": true})).await;
    said.has("Red or green?").has("send_message");
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_gets_no_task_but_the_question() {
    let kitchen = Kitchen::playing(ASKS);
    let knows_tasks = ClientCapabilities::builder().enable_tasks().build();
    let client = kitchen.client_with("cook", knows_tasks).await;
    let said = client.call("spawn_agent", json!({"task": "Paint.", "wait": true})).await;
    said.has("Red or green?").has("send_message");
}

#[tokio::test]
async fn a_stop_ends_a_sub_agent_that_hangs() {
    let kitchen = Kitchen::playing("agent *\nturn\n  fault hang\n  say never\n");
    let client = kitchen.client("cook").await;
    client.call("spawn_agent", json!({"task": "Hang.", "name": "Stuck"})).await;
    let stop = json!({"task": "Stuck", "reason": "enough"});
    client.call("stop_task", stop).await.has("agent:1 \"Stuck\" cancelled");
    client.call("wait_tasks", json!({})).await.has("cancelled");
}

#[tokio::test]
async fn its_conversation_is_read_in_parts() {
    let kitchen = Kitchen::playing(
        "agent *\nturn\n  say Grüße, I look.\n  call list_tasks\nturn\n  say There was nothing.\n",
    );
    let client = kitchen.client("cook").await;
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
async fn what_is_wrong_is_named_and_starts_nothing() {
    let kitchen = Kitchen::playing("agent *\nturn\n  say Done.\n");
    let client = kitchen.client("cook").await;
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
async fn without_a_model_or_its_key_nothing_starts_and_it_says_what_to_set() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    let said = client.call("spawn_agent", json!({"task": "x"})).await;
    said.refused("invalid").has("names no model").has("set `model` in the configuration");
    if std::env::var_os("ANTHROPIC_API_KEY").is_none() {
        let arguments = json!({"task": "x", "model": "anthropic/claude-opus-4-5"});
        let said = client.call("spawn_agent", arguments).await;
        said.refused("invalid").has("no key for anthropic").has("ANTHROPIC_API_KEY");
    }
    let file = json!({"task": "x", "model": "script:/etc/passwd"});
    client.call("spawn_agent", file).await.refused("invalid").has("is not provider/model");
    let all = client.call("list_tasks", json!({"state": "all"})).await;
    assert_eq!(all.text, "There are no tasks.");
}

#[tokio::test]
async fn commands_are_run_only_where_that_is_allowed() {
    let script =
        "agent *\nturn\n  call run_process {\"command\": \"touch made\"}\nturn\n  say Done.\n";
    let kitchen = Kitchen::playing(script);
    let run = json!({"task": "Make it.", "wait": true});
    let careful = kitchen.client("careful").await;
    careful.call("spawn_agent", run.clone()).await.has("Done.");
    assert!(!kitchen.path().join("made").exists());
    let allowing = kitchen.client_allowing("allowing", "run_process(touch *)").await;
    allowing.call("spawn_agent", run).await.has("Done.");
    assert!(kitchen.path().join("made").exists(), "in the workspace");
}

#[tokio::test]
async fn a_daemon_killed_under_sub_agents_at_work_is_not_noticed() {
    let kitchen = Kitchen::playing(
        "agent Boss\n\
         turn\n  call spawn_agent {\"name\": \"Helper\", \"task\": \"Look.\", \"wait\": true}\n\
         turn\n  when three mushrooms\n  say The helper found three.\n\
         agent Helper\nturn\n  delay 2s\n  say three mushrooms\n",
    );
    let client = kitchen.client("cook").await;
    let call = client.call("spawn_agent", json!({"task": "Go.", "name": "Boss", "wait": true}));
    let kills = async {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            kitchen.kill_daemon();
        }
    };
    let (said, ()) = tokio::join!(call, kills);
    said.has("agent:1 \"Boss\" succeeded").has("The helper found three.");
    client.call("wait_tasks", json!({})).await.has("nothing to wait for");
    let all = client.call("list_tasks", json!({"state": "all"})).await;
    assert_eq!(all.structured["total"], 1, "{}", all.text);
    let read = client.call("read_output", json!({"task": "1", "from": 0})).await;
    assert_eq!(read.text.matches("The helper found three.").count(), 1, "{}", read.text);
}
