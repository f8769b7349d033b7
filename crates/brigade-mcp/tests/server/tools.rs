//! Each tool: valid and invalid calls.

use std::time::{Duration, Instant};

use rmcp::ServiceError;
use rmcp::model::{CallToolRequest, ClientRequest};
use rmcp::service::PeerRequestOptions;
use serde_json::{Value, json};

use crate::support::{TestWorkspace, tool_call};

#[tokio::test]
async fn tools_have_strict_schemas_and_say_when_not_to_use_them() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
    let tools = client.service.list_all_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    let expected = [
        "spawn_agent",
        "run_process",
        "list_tasks",
        "wait_tasks",
        "send_message",
        "stop_task",
        "read_output",
    ];
    assert_eq!(names, expected);
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
    assert_eq!(
        annotations.open_world_hint,
        Some(false),
        "a message reaches tasks of the client only"
    );
    // A model may see only the instructions and the tool names before it calls a tool.
    let instructions = client.service.peer_info().unwrap().instructions.clone().unwrap();
    for part in ["instead of your own shell", "over a minute", "background: true", "survive"] {
        assert!(instructions.contains(part), "{part}: {instructions}");
    }
    for name in expected {
        assert!(instructions.contains(name), "{name}: {instructions}");
    }
    // No daemon was started for this.
    assert_eq!(workspace.daemon_pid(), None);
}

#[test]
fn the_guides_show_settings_for_unattended_clients() {
    let guides = [include_str!("../../../../README.md"), include_str!("../../../../docs/mcp.md")];
    for guide in guides {
        assert!(guide.contains("--allowedTools mcp__brigade"), "claude -p");
        assert!(guide.contains("default_tools_approval_mode = \"approve\""), "codex exec");
    }
}

#[tokio::test]
async fn a_process_runs_and_its_result_is_returned() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
    let command = "echo $GREETING; pwd; echo oops >&2; exit 3";
    let arguments = json!({"command": command, "name": "First", "env": {"GREETING": "hello"}});
    let reply = client.call("run_process", arguments).await;
    reply.has("process:1 \"First\" failed (exit code 3)").has("hello\n").has("oops");
    reply.has(workspace.path().canonicalize().unwrap().to_str().unwrap());
    assert!(!reply.is_error, "a failed process is a result");
    assert_eq!(reply.structured["exit_code"], 3);
    assert_eq!(reply.structured["state"], "failed");
    // A result is returned once.
    client.call("list_tasks", json!({})).await.has("no tasks to show");
    let all = client.call("list_tasks", json!({"state": "failed"})).await;
    assert_eq!(all.structured["tasks"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_slow_process_moves_to_the_background() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("claude-code").await;
    let arguments = json!({"command": "echo begun; sleep 3; echo done", "wait_secs": 1});
    let reply = client.call("run_process", arguments).await;
    reply.has("process:1 running").has("begun").has("did not end within 1 second");
    let wait_command = reply.text.lines().last().unwrap();
    assert_eq!(wait_command, "brigade --workspace kitchen wait process:1");
    client.call("list_tasks", json!({"state": "running"})).await.has("process:1 running for");
    let started_at = Instant::now();
    let early = client.call("wait_tasks", json!({"wait_secs": 0})).await;
    early.has("No result was taken").has("Still running:\nprocess:1");
    assert_eq!(early.structured["timed_out"], true);
    assert!(
        started_at.elapsed() < Duration::from_millis(900),
        "a wait of 0 seconds returns at once"
    );
    let late = client.call("wait_tasks", json!({})).await;
    late.has("process:1 succeeded (exit code 0)").has("begun\ndone");
    client.call("wait_tasks", json!({})).await.has("There is nothing to wait for");
    let again = client.call("wait_tasks", json!({"tasks": ["1"]})).await;
    again.has("had been returned before");
}

#[tokio::test]
async fn the_wait_command_is_for_clients_that_it_wakes() {
    let workspace = TestWorkspace::new();
    let run = json!({"command": "true", "background": true});
    let has_wait_command = async |name: &str| {
        let reply = workspace.client(name).await.call("run_process", run.clone()).await;
        let in_text = reply.text.contains("run this in a background shell");
        assert_eq!(in_text, reply.structured["wait_command"].is_string(), "{}", reply.text);
        in_text
    };
    assert!(has_wait_command("claude-code").await);
    for other in ["codex-mcp-client", "gemini-cli-mcp-client", "opencode", "claude-code-like"] {
        assert!(!has_wait_command(other).await, "{other}");
    }
}

#[tokio::test]
async fn the_same_key_returns_the_same_task() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
    let arguments = json!({"command": "echo x >> count", "key": "once"});
    let first = client.call("run_process", arguments.clone()).await;
    let second = client.call("run_process", arguments).await;
    assert_eq!(first.address(), second.address());
    assert_eq!(workspace.file("count"), "x\n");
    let other = client.call("run_process", json!({"command": "true", "key": "once"})).await;
    other.refused("conflict");
    // Without a key, the same command line starts another task.
    for _ in 0..2 {
        client.call("run_process", json!({"command": "echo y >> count"})).await;
    }
    assert_eq!(workspace.file("count"), "x\ny\ny\n");
}

#[tokio::test]
async fn messages_are_lines_of_the_input() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
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
async fn a_stop_ends_the_process_tree_and_reports_it() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
    let arguments = json!({"command": "sleep 60 & sleep 61", "name": "Nap", "background": true});
    client.call("run_process", arguments).await;
    let stop = json!({"task": "nap", "reason": "enough"});
    client.call("stop_task", stop.clone()).await.has("process:1 \"Nap\" cancelled");
    client.call("stop_task", stop).await.has("nothing was stopped");
    // The result is still delivered to the client that started the task.
    client.call("wait_tasks", json!({})).await.has("cancelled");
}

#[tokio::test]
async fn output_is_read_in_parts() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
    let reply = client.call("run_process", json!({"command": "seq 1 20000; echo e >&2"})).await;
    reply.has("bytes of output before this").has("read_output with task \"process:1\" and from 0");
    assert!(reply.text.len() < 5_000, "{} bytes", reply.text.len());
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
async fn invalid_arguments_are_named() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
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
    let unknown = client.service.call_tool(tool_call("spawn", json!({}))).await.unwrap_err();
    let ServiceError::McpError(error) = unknown else { panic!("{unknown}") };
    assert_eq!(error.code.0, -32602);
    assert!(error.message.contains("run_process"), "{}", error.message);
}

#[tokio::test]
async fn null_is_the_default_and_arguments_of_the_client_program_are_ignored() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
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
    // An empty array means all tasks, as the schema says.
    client.call("run_process", json!({"command": "echo ho", "background": true})).await;
    client.call("wait_tasks", json!({"tasks": []})).await.has("ho");
}

#[tokio::test]
async fn a_wait_for_any_lists_running_tasks() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
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
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
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
async fn one_read_is_small_enough_for_every_client() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
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
    assert_eq!(first.output().len() as u64, next, "the positions count the returned bytes");
    first.has(&format!("call read_output with from {next}"));
}

#[tokio::test]
async fn two_clients_get_only_their_own_results() {
    let workspace = TestWorkspace::new();
    let one = workspace.client("one").await;
    let other = workspace.client("other").await;
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
async fn a_client_controls_its_own_tasks_and_sees_those_of_others() {
    let workspace = TestWorkspace::new();
    let one = workspace.client("one").await;
    let other = workspace.client("other").await;
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
    let sharing = workspace.client_sharing("other").await;
    sharing.call("send_message", message).await;
    one.until("read_output", json!({"task": "Oven"}), "hi\nhi\n").await;
    sharing.call("stop_task", json!({"task": "Oven"})).await;
    one.call("wait_tasks", json!({"tasks": ["Oven"]})).await.has("cancelled");
}

#[tokio::test]
async fn the_next_conversation_finds_the_task() {
    let workspace = TestWorkspace::new();
    let before = workspace.client("cook").await;
    let arguments = json!({"command": "sleep 1; echo ready", "name": "Oven", "background": true});
    before.call("run_process", arguments).await;
    before.service.cancel().await.unwrap();
    let after = workspace.client("cook").await;
    after.call("list_tasks", json!({})).await.has("\"Oven\"").has("of another conversation");
    let reply = after.call("wait_tasks", json!({})).await;
    reply.has("There is nothing to wait for").has("\"Oven\"");
    let reply = after.call("wait_tasks", json!({"tasks": ["Oven"]})).await;
    reply.has("\"Oven\" succeeded").has("ready");
}

#[tokio::test]
async fn progress_has_the_last_line() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
    let command = "for i in 1 2 3 4; do echo line $i; sleep 1; done";
    client.call("run_process", json!({ "command": command })).await.has("succeeded");
    let notifications = client.notifications.progress.lock().unwrap().clone();
    assert!(notifications.len() >= 2, "{notifications:?}");
    assert!(
        notifications.windows(2).all(|two| two[0].progress < two[1].progress),
        "{notifications:?}"
    );
    let is_line = |message: &str| message.starts_with("line ");
    assert!(
        notifications.iter().any(|one| one.message.as_deref().is_some_and(is_line)),
        "{notifications:?}"
    );
}

#[tokio::test]
async fn a_cancelled_call_ends_the_wait_and_not_the_task() {
    let workspace = TestWorkspace::new();
    let client = workspace.client("cook").await;
    let arguments = json!({"command": "echo in; sleep 3; echo out", "name": "Slow"});
    let request = CallToolRequest::new(tool_call("run_process", arguments));
    let options = PeerRequestOptions::no_options();
    let request = ClientRequest::CallToolRequest(request);
    let handle = client.service.send_cancellable_request(request, options).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    handle.cancel(Some("changed my mind".into())).await.unwrap();
    client.call("list_tasks", json!({"state": "running"})).await.has("\"Slow\" running");
    client.call("wait_tasks", json!({})).await.has("\"Slow\" succeeded").has("in\nout");
}
