//! Each tool, as it should go and as it should not.

use std::time::{Duration, Instant};

use rmcp::ServiceError;
use rmcp::model::{CallToolRequest, ClientRequest};
use rmcp::service::PeerRequestOptions;
use serde_json::{Value, json};

use crate::support::{Kitchen, asked};

#[tokio::test]
async fn tools_are_strict_and_say_when_not_to_use_them() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    let tools = client.service.list_all_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    let expect = [
        "spawn_agent",
        "run_process",
        "list_tasks",
        "wait_tasks",
        "send_message",
        "stop_task",
        "read_output",
    ];
    assert_eq!(names, expect);
    for tool in &tools {
        let schema = &tool.input_schema;
        assert_eq!(schema["type"], "object", "{}", tool.name);
        assert_eq!(schema["additionalProperties"], json!(false), "{}", tool.name);
        for (name, property) in schema["properties"].as_object().unwrap() {
            assert!(property["type"].is_string(), "{} {name}: {property}", tool.name);
            assert!(property["description"].is_string(), "{} {name}", tool.name);
        }
        let annotations = tool.annotations.as_ref().unwrap();
        assert!(annotations.read_only_hint.is_some() && annotations.open_world_hint.is_some());
        assert!(annotations.destructive_hint.is_some() && annotations.idempotent_hint.is_some());
        let description = tool.description.as_ref().unwrap();
        assert!(description.contains("Not for"), "{description}");
        assert!(description.len() < 600, "{} is long-winded", tool.name);
    }
    let send = tools.iter().find(|tool| tool.name == "send_message").unwrap();
    let annotations = send.annotations.as_ref().unwrap();
    assert_eq!(annotations.open_world_hint, Some(false), "it reaches tasks of the client only");
    // A model may see nothing else than this and the names before it asks for a tool.
    let instructions = client.service.peer_info().unwrap().instructions.clone().unwrap();
    for part in ["instead of your own shell", "over a minute", "background: true", "survive"] {
        assert!(instructions.contains(part), "{part}: {instructions}");
    }
    for name in expect {
        assert!(instructions.contains(name), "{name}: {instructions}");
    }
    // Nothing of this needs a daemon.
    assert_eq!(kitchen.daemon_pid(), None);
}

#[test]
fn the_lines_for_programs_without_a_person_are_in_the_guides() {
    let guides = [include_str!("../../../../README.md"), include_str!("../../../../docs/mcp.md")];
    for guide in guides {
        assert!(guide.contains("--allowedTools mcp__brigade"), "claude -p");
        assert!(guide.contains("default_tools_approval_mode = \"approve\""), "codex exec");
    }
}

#[tokio::test]
async fn a_command_is_run_and_its_end_told() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    let command = "echo $GREETING; pwd; echo oops >&2; exit 3";
    let arguments = json!({"command": command, "name": "First", "env": {"GREETING": "hello"}});
    let said = client.call("run_process", arguments).await;
    said.has("process:1 \"First\" failed (exit code 3)").has("hello\n").has("oops");
    said.has(kitchen.path().canonicalize().unwrap().to_str().unwrap());
    assert!(!said.is_error, "a failing command is a result");
    assert_eq!(said.structured["exit_code"], 3);
    assert_eq!(said.structured["state"], "failed");
    // It is told once.
    client.call("list_tasks", json!({})).await.has("no tasks to show");
    let all = client.call("list_tasks", json!({"state": "failed"})).await;
    assert_eq!(all.structured["tasks"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_slow_command_moves_to_the_background() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("claude-code").await;
    let arguments = json!({"command": "echo begun; sleep 3; echo done", "wait_secs": 1});
    let said = client.call("run_process", arguments).await;
    said.has("process:1 running").has("begun").has("did not end within 1 second");
    let wake = said.text.lines().last().unwrap();
    assert_eq!(wake, "brigade --workspace kitchen wait process:1");
    client.call("list_tasks", json!({"state": "running"})).await.has("process:1 running for");
    let began = Instant::now();
    let early = client.call("wait_tasks", json!({"wait_secs": 0})).await;
    early.has("No result was taken").has("Still running:\nprocess:1");
    assert_eq!(early.structured["timed_out"], true);
    assert!(began.elapsed() < Duration::from_millis(900), "0 returns the states at once");
    let late = client.call("wait_tasks", json!({})).await;
    late.has("process:1 succeeded (exit code 0)").has("begun\ndone");
    client.call("wait_tasks", json!({})).await.has("There is nothing to wait for");
    let again = client.call("wait_tasks", json!({"tasks": ["1"]})).await;
    again.has("had been returned before");
}

#[tokio::test]
async fn the_line_that_wakes_is_for_clients_that_are_woken_by_it() {
    let kitchen = Kitchen::new();
    let run = json!({"command": "true", "background": true});
    let wakes = async |name: &str| {
        let said = kitchen.client(name).await.call("run_process", run.clone()).await;
        let is_told = said.text.contains("run this in a background shell");
        assert_eq!(is_told, said.structured["wait_command"].is_string(), "{}", said.text);
        is_told
    };
    assert!(wakes("claude-code").await);
    for other in ["codex-mcp-client", "gemini-cli-mcp-client", "opencode", "claude-code-like"] {
        assert!(!wakes(other).await, "{other}");
    }
}

#[tokio::test]
async fn a_key_makes_it_the_same_run() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    let arguments = json!({"command": "echo x >> count", "key": "once"});
    let first = client.call("run_process", arguments.clone()).await;
    let second = client.call("run_process", arguments).await;
    assert_eq!(first.address(), second.address());
    assert_eq!(kitchen.file("count"), "x\n");
    let other = client.call("run_process", json!({"command": "true", "key": "once"})).await;
    other.refused("conflict");
    // Without a key the same command is another run.
    for _ in 0..2 {
        client.call("run_process", json!({"command": "echo y >> count"})).await;
    }
    assert_eq!(kitchen.file("count"), "x\ny\ny\n");
}

#[tokio::test]
async fn messages_are_lines_of_the_input() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    let arguments = json!({"command": "cat", "name": "Cat", "stdin": true, "background": true});
    client.call("run_process", arguments).await.has("running");
    client.call("send_message", json!({"to": "Cat", "message": "meow"})).await.has("was sent");
    client.call("send_message", json!({"to": "Cat", "close": true})).await.has("is closed");
    client.call("wait_tasks", json!({"tasks": ["Cat"]})).await.has("succeeded").has("meow");
    let late = client.call("send_message", json!({"to": "Cat", "message": "more"})).await;
    late.refused("ended");
    client.call("send_message", json!({"to": "Cat"})).await.refused("invalid").has("`message`");
}

#[tokio::test]
async fn a_stop_reaches_everything_and_says_so() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    let arguments = json!({"command": "sleep 60 & sleep 61", "name": "Nap", "background": true});
    client.call("run_process", arguments).await;
    let stop = json!({"task": "nap", "reason": "enough"});
    client.call("stop_task", stop.clone()).await.has("process:1 \"Nap\" cancelled");
    client.call("stop_task", stop).await.has("nothing was stopped");
    // The result still belongs to whoever started it.
    client.call("wait_tasks", json!({})).await.has("cancelled");
}

#[tokio::test]
async fn output_is_read_in_parts() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    let said = client.call("run_process", json!({"command": "seq 1 20000; echo e >&2"})).await;
    said.has("bytes of output before this").has("read_output with task \"process:1\" and from 0");
    assert!(said.text.len() < 5_000, "{} bytes", said.text.len());
    let read = |arguments: Value| client.call("read_output", arguments);
    let first = read(json!({"task": "1", "from": 0, "max_bytes": 8})).await;
    first.has(".\n1\n2\n3\n4\n").has("call read_output with from 8");
    read(json!({"task": "1", "from": 8, "max_bytes": 4})).await.has(".\n5\n6\n");
    read(json!({"task": "1"})).await.has("20000");
    read(json!({"task": "1", "stream": "stderr"})).await.has(".\ne");
    let some = read(json!({"task": "1", "pattern": "999$", "max_bytes": 30})).await;
    some.has(": 999\n").has("20 lines match").has("the same pattern and from");
    read(json!({"task": "1", "pattern": "("})).await.refused("invalid").has("pattern");
    read(json!({"task": "1", "max_bytes": 0})).await.refused("invalid");
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    for (tool, arguments, kind, part) in [
        ("run_process", json!({}), "invalid", "missing argument `command`"),
        ("run_process", json!({"command": "x", "shell": 1}), "invalid", "unknown argument `shell`"),
        ("run_process", json!({"command": ["x"]}), "invalid", "`command`"),
        ("run_process", json!({"command": " "}), "invalid", "blank"),
        ("run_process", json!({"command": "x", "cwd": "nowhere"}), "invalid", "`cwd`"),
        ("run_process", json!({"command": "x", "name": "all"}), "invalid", "reserved"),
        ("run_process", json!({"command": "x", "wait_secs": -1}), "invalid", "negative"),
        (
            "run_process",
            json!({"command": "x", "wait_secs": "1", "env": []}),
            "invalid",
            "the argument `wait_secs` must be an integer, not a string; the argument `env` must be an \
             object, not an array",
        ),
        (
            "run_process",
            json!({"command": "x", "timeout_secs": 5}),
            "invalid",
            "`wait_secs` is how long this call waits, `deadline_secs` is when the task is killed",
        ),
        (
            "run_process",
            json!({"command": "x", "keep": true}),
            "invalid",
            "unknown argument `keep`",
        ),
        ("wait_tasks", json!({"tasks": "1"}), "invalid", "`tasks` must be an array, not a string"),
        ("run_process", json!({"command": "x", "deadline_secs": 0}), "invalid", "deadline_secs"),
        ("run_process", json!({"command": "x".repeat(200_000)}), "invalid", "131071"),
        ("wait_tasks", json!({"wait_secs": 0.5}), "invalid", "not whole"),
        ("wait_tasks", json!({"mode": "some"}), "invalid", "`any` or `all`"),
        ("wait_tasks", json!({"tasks": ["process:99"]}), "not_found", "99"),
        ("stop_task", json!({"task": "nobody"}), "not_found", "nobody"),
        ("read_output", json!({"task": "a:b:c"}), "invalid", "a:b:c"),
        ("list_tasks", json!({"state": "lost"}), "invalid", "`lost`"),
    ] {
        client.call(tool, arguments).await.refused(kind).has(part);
    }
    let all = client.call("list_tasks", json!({"state": "all"})).await;
    assert_eq!(all.text, "There are no tasks.", "a refused call changes nothing");
    let unknown = client.service.call_tool(asked("spawn", json!({}))).await.unwrap_err();
    let ServiceError::McpError(error) = unknown else { panic!("{unknown}") };
    assert_eq!(error.code.0, -32602);
    assert!(error.message.contains("run_process"), "{}", error.message);
}

#[tokio::test]
async fn null_is_the_default_and_arguments_of_the_client_program_are_ignored() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    let tools = client.service.list_all_tools().await.unwrap();
    let arguments = |tool: &str| -> Vec<String> {
        let tool = tools.iter().find(|one| one.name == tool).unwrap();
        tool.input_schema["properties"].as_object().unwrap().keys().cloned().collect()
    };
    let optional = |tool: &str, mut given: Value| {
        for name in arguments(tool) {
            given.as_object_mut().unwrap().entry(name).or_insert(Value::Null);
        }
        given["wait_for_previous"] = json!(true);
        given
    };
    let run = optional("run_process", json!({"command": "echo hi", "run_in_background": true}));
    client.call("run_process", run).await.has("process:1").has("Call wait_tasks");
    client.call("wait_tasks", optional("wait_tasks", json!({}))).await.has("hi");
    client.call("read_output", optional("read_output", json!({"task": "1"}))).await.has("hi");
    client.call("list_tasks", optional("list_tasks", json!({}))).await.has("no tasks to show");
    client.call("stop_task", optional("stop_task", json!({"task": "1"}))).await.has("had ended");
    let message = optional("send_message", json!({"to": "1", "message": "x"}));
    client.call("send_message", message).await.refused("ended");
    let blank = optional("spawn_agent", json!({"task": " "}));
    client.call("spawn_agent", blank).await.refused("invalid").has("blank");
    // An empty array is what the schema says: everything.
    client.call("run_process", json!({"command": "echo ho", "background": true})).await;
    client.call("wait_tasks", json!({"tasks": []})).await.has("ho");
}

#[tokio::test]
async fn a_wait_for_any_lists_what_still_runs() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    for (name, command) in [("Oven", "sleep 60"), ("Kettle", "echo hot")] {
        let run = json!({"command": command, "name": name, "background": true});
        client.call("run_process", run).await;
    }
    let waited = client.call("wait_tasks", json!({})).await;
    waited.has("\"Kettle\" succeeded").has("1 task is still running").has("\"Oven\" running");
    assert_eq!(waited.structured["still_running"][0]["name"], "Oven");
    client.call("stop_task", json!({"task": "Oven"})).await;
}

#[tokio::test]
async fn many_results_and_tasks_come_in_pages() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    for _ in 0..53 {
        let run = json!({"command": "seq 1 2000", "background": true});
        client.call("run_process", run).await;
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut replies = 0;
    while seen.len() < 53 {
        let waited = client.call("wait_tasks", json!({"mode": "all"})).await;
        let ended = waited.structured["ended"].as_array().unwrap();
        assert!(!ended.is_empty() && ended.len() <= 20, "{}", waited.text);
        seen.extend(ended.iter().map(|task| task["address"].to_string()));
        assert!(waited.text.len() < 40_000, "{}", waited.text.len());
        assert!(waited.structured.to_string().len() < 60_000);
        replies += 1;
    }
    assert_eq!(replies, 3, "each result once");
    let first = client.call("list_tasks", json!({"state": "all"})).await;
    first
        .has("50 of 53 tasks")
        .has("3 older tasks are not shown: call list_tasks with cursor \"4\"");
    let next = first.structured["next_cursor"].clone();
    let last = client.call("list_tasks", json!({"state": "all", "cursor": next})).await;
    last.has("process:1 ").has("process:3 ");
    assert_eq!(last.structured["tasks"].as_array().unwrap().len(), 3);
    assert_eq!(last.structured["next_cursor"], Value::Null);
    client.call("list_tasks", json!({"cursor": "x"})).await.refused("invalid").has("`cursor`");
    let near = client.call("read_output", json!({"task": "process:99"})).await;
    assert!(!near.refused("not_found").text.contains("did you mean"), "{}", near.text);
    let named: Vec<String> = (1..=53).map(|no| format!("process:{no}")).collect();
    let again = client.call("wait_tasks", json!({"tasks": named, "mode": "all"})).await;
    again.has("33 of the tasks were not waited for");
    assert_eq!(again.structured["not_waited_for"][0], "process:21");
}

#[tokio::test]
async fn what_is_read_at_once_is_what_every_client_shows() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    client.call("run_process", json!({"command": "yes | head -c 200000; echo end"})).await;
    let all = json!({"task": "1", "max_bytes": 1_000_000});
    let end = client.call("read_output", all).await;
    end.has("\nend");
    let shown = end.structured.to_string().chars().count();
    assert!(shown <= 40_000, "{shown} characters");
    let first =
        client.call("read_output", json!({"task": "1", "from": 0, "max_bytes": 40_000})).await;
    assert!(first.structured.to_string().chars().count() <= 40_000);
    let next = first.structured["next"].as_u64().unwrap();
    assert_eq!(first.output().len() as u64, next, "the positions are those of what is shown");
    first.has(&format!("call read_output with from {next}"));
}

#[tokio::test]
async fn two_clients_see_each_other_and_take_only_their_own() {
    let kitchen = Kitchen::new();
    let (one, other) = (kitchen.client("one").await, kitchen.client("other").await);
    let quick = |name| json!({"command": "echo hi", "name": name, "background": true});
    let (first, second) =
        tokio::join!(one.call("run_process", quick("A")), other.call("run_process", quick("B")));
    assert_ne!(first.address(), second.address());
    let all = json!({"mode": "all"});
    let (first, second) =
        tokio::join!(one.call("wait_tasks", all.clone()), other.call("wait_tasks", all));
    assert!(first.has("\"A\"").structured["ended"].as_array().unwrap().len() == 1);
    assert!(second.has("\"B\"").structured["ended"].as_array().unwrap().len() == 1);
    one.call("wait_tasks", json!({"tasks": ["B"]})).await.has("had been returned before");
}

#[tokio::test]
async fn a_client_steers_its_own_work_and_sees_that_of_others() {
    let kitchen = Kitchen::new();
    let (one, other) = (kitchen.client("one").await, kitchen.client("other").await);
    let cat = json!({"command": "cat", "name": "Oven", "background": true, "stdin": true});
    one.call("run_process", cat).await;
    other.call("list_tasks", json!({})).await.has("\"Oven\"");
    let refused = other.call("stop_task", json!({"task": "Oven"})).await;
    refused.refused("forbidden").has("process:1 was started by the client one");
    refused.has("`brigade stop process:1`").has("`shared = true`").has("`brigade mcp --shared`");
    let message = json!({"to": "Oven", "message": "hi"});
    let refused = other.call("send_message", message.clone()).await;
    refused.refused("forbidden").has("`brigade send process:1 MESSAGE`");
    one.call("send_message", message.clone()).await;
    let sharing = kitchen.client_sharing("other").await;
    sharing.call("send_message", message).await;
    one.until("read_output", json!({"task": "Oven"}), "hi\nhi\n").await;
    sharing.call("stop_task", json!({"task": "Oven"})).await;
    one.call("wait_tasks", json!({"tasks": ["Oven"]})).await.has("cancelled");
}

#[tokio::test]
async fn the_next_conversation_finds_the_work() {
    let kitchen = Kitchen::new();
    let before = kitchen.client("cook").await;
    let arguments = json!({"command": "sleep 1; echo ready", "name": "Oven", "background": true});
    before.call("run_process", arguments).await;
    before.service.cancel().await.unwrap();
    let after = kitchen.client("cook").await;
    after.call("list_tasks", json!({})).await.has("\"Oven\"").has("of another conversation");
    let said = after.call("wait_tasks", json!({})).await;
    said.has("There is nothing to wait for").has("\"Oven\"");
    let said = after.call("wait_tasks", json!({"tasks": ["Oven"]})).await;
    said.has("\"Oven\" succeeded").has("ready");
}

#[tokio::test]
async fn progress_tells_the_last_line() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    let command = "for i in 1 2 3 4; do echo line $i; sleep 1; done";
    client.call("run_process", json!({ "command": command })).await.has("succeeded");
    let heard = client.heard.progress.lock().unwrap().clone();
    assert!(heard.len() >= 2, "{heard:?}");
    assert!(heard.windows(2).all(|two| two[0].progress < two[1].progress), "{heard:?}");
    let said = |message: &str| message.starts_with("line ");
    assert!(heard.iter().any(|h| h.message.as_deref().is_some_and(said)), "{heard:?}");
}

#[tokio::test]
async fn taking_a_call_back_ends_the_wait_and_not_the_work() {
    let kitchen = Kitchen::new();
    let client = kitchen.client("cook").await;
    let arguments = json!({"command": "echo in; sleep 3; echo out", "name": "Slow"});
    let request = CallToolRequest::new(asked("run_process", arguments));
    let options = PeerRequestOptions::no_options();
    let request = ClientRequest::CallToolRequest(request);
    let handle = client.service.send_cancellable_request(request, options).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    handle.cancel(Some("changed my mind".into())).await.unwrap();
    client.call("list_tasks", json!({"state": "running"})).await.has("\"Slow\" running");
    client.call("wait_tasks", json!({})).await.has("\"Slow\" succeeded").has("in\nout");
}
