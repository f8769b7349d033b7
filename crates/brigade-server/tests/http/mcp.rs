//! MCP over HTTP: sessions of older clients, newer clients without them, tools and tasks.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::ids::Time;
use brigade_testkit::ManualClock;
use serde_json::{Value, json};

use crate::mcp_client::{LEGACY, McpClient, McpServer, read_events, text};
use crate::support::{SESSION, TestServer};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::test(flavor = "multi_thread")]
async fn an_older_client_has_a_session() {
    let server = McpServer::start().await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY] {
        let mut client = server.client("cook").await;
        assert_eq!(client.initialize(version).await["protocolVersion"], version);
        let tools = client.request("tools/list", json!({})).await.result();
        let names = tools["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone());
        let names: Vec<Value> = names.collect();
        assert!(names.contains(&json!("run_process")), "{names:?}");
        let ran = client.call("run_process", json!({ "command": "pwd" })).await;
        assert!(text(&ran).contains(&server.workspace), "{ran}");
    }
    let mut client = server.client("cook").await;
    client.initialize(LEGACY).await;
    let started = json!({ "command": "echo soup", "background": true });
    let started = client.call("run_process", started).await;
    assert!(!text(&started).contains("brigade --workspace"), "the client may be elsewhere");
    let waited = client.call("wait_tasks", json!({})).await;
    assert!(text(&waited).contains("soup"), "{waited}");
    let waited = client.call("wait_tasks", json!({})).await;
    assert!(text(&waited).contains("nothing to wait for"), "{waited}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_client_needs_no_session() {
    let server = McpServer::start().await;
    let client = server.client("cook").await;
    let found = client.request_alone("server/discover", json!({})).await.result();
    let versions = found["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{found}");
    let started = json!({ "command": "echo soup", "background": true });
    let reply = client.call_alone("run_process", started).await;
    assert!(text(&reply).contains("process:1"), "{reply}");
    // A wait without names is for what the token has started.
    let waited = client.call_alone("wait_tasks", json!({})).await;
    assert!(text(&waited).contains("soup"), "{waited}");
    let waited = client.call_alone("wait_tasks", json!({})).await;
    assert!(text(&waited).contains("nothing to wait for"), "{waited}");
    // An id of a session means nothing to this version.
    let mut client = client;
    client.session = Some("no-such-session".to_owned());
    client.request_alone("tools/list", json!({})).await.result();
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_tasks_of_the_protocol() {
    let server = McpServer::start().await;
    let client = server.client("cook").await;
    let command = json!({ "command": "sleep 2; echo soup" });
    let created = client.call_alone("run_process", command).await;
    assert_eq!(created["resultType"], "task", "{created}");
    let id = created["taskId"].clone();
    let params = json!({ "notifications": { "taskIds": [id] } });
    let listen = client.request_alone("subscriptions/listen", params);
    let get = client.request_alone("tasks/get", json!({ "taskId": id }));
    assert_eq!(get.await.result()["status"], "working");
    // The stream stays open, so only a part of it can be awaited.
    assert!(tokio::time::timeout(Duration::from_secs(1), listen).await.is_err());
    let ended = loop {
        let task = client.request_alone("tasks/get", json!({ "taskId": id })).await.result();
        if task["status"] != "working" {
            break task;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(ended.to_string().contains("soup"), "{ended}");

    let command = json!({ "command": "sleep 60" });
    let id = client.call_alone("run_process", command).await["taskId"].clone();
    client.request_alone("tasks/cancel", json!({ "taskId": id })).await.result();
    let unknown = json!({ "taskId": "nowhere/process:9" });
    client.request_alone("tasks/get", unknown).await.expect_error(200, -32602);
    let stopped = loop {
        let task = client.request_alone("tasks/get", json!({ "taskId": id })).await.result();
        if task["status"] != "working" {
            break task;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(stopped["status"], "cancelled", "{stopped}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_names_its_tasks() {
    let server = McpServer::start().await;
    let client = server.client("cook").await;
    let command = json!({ "command": "sleep 2; echo soup" });
    let id = client.call_alone("run_process", command).await["taskId"].clone();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities":
            { "extensions": { "io.modelcontextprotocol/tasks": {} } },
    });
    let params = json!({ "notifications": { "taskIds": [id] }, "_meta": meta });
    let message = client.message("subscriptions/listen", params).to_string();
    let post = client.builder(reqwest::Method::POST).body(message);
    let post = post.header("content-type", "application/json");
    let post = post.header("accept", "application/json, text/event-stream");
    let post = post.header("mcp-protocol-version", "2026-07-28");
    let post = post.header("mcp-method", "subscriptions/listen");
    let mut stream = post.send().await.unwrap();
    assert_eq!(stream.status(), 200);
    let mut received = String::new();
    while !received.contains(r#""status":"completed""#) {
        let chunk = tokio::time::timeout(crate::support::TEST_TIMEOUT, stream.chunk());
        let chunk = chunk.await.unwrap().unwrap().expect("the stream is open");
        received.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let messages = read_events(&received);
    assert_eq!(messages[0]["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(messages[0]["params"]["notifications"], json!({ "taskIds": [id] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_survives_a_restart() {
    let server = McpServer::start().await;
    let client = server.client("cook").await.connect().await;
    let started = json!({ "command": "sleep 1; echo soup", "background": true });
    client.call("run_process", started.clone()).await;
    let server = server.restart().await;
    // Two requests at once open the session again only once.
    let (waited, listed) =
        tokio::join!(client.call("wait_tasks", json!({})), client.request("tools/list", json!({})));
    listed.result();
    assert!(text(&waited).contains("soup"), "the conversation is the same: {waited}");
    // A call after the restart is a new one, not a repetition of the first.
    let again = client.call("run_process", json!({ "command": "echo salad" })).await;
    assert!(text(&again).contains("salad"), "{again}");
    let _server = server.restart().await;
    assert_eq!(client.delete().await.status, 204);
    client.request("ping", json!({})).await.expect_error(404, -32600);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_or_foreign_session_is_not_found() {
    let server = McpServer::start().await;
    let mut client = server.client("cook").await.connect().await;
    let mut other = server.client("cook").await;
    other.session.clone_from(&client.session);
    other.request("ping", json!({})).await.expect_error(404, -32600);
    assert_eq!(other.delete().await.status, 404);
    client.request("ping", json!({})).await.result();
    assert_eq!(client.delete().await.status, 204);
    client.request("ping", json!({})).await.expect_error(404, -32600);
    assert_eq!(client.listen().await.status(), 404);
    assert_eq!(client.delete().await.status, 404);
    for id in ["x", "../x", "00000000-0000-4000-8000-000000000000", &"x".repeat(10_000)] {
        client.session = Some(id.to_owned());
        client.request("ping", json!({})).await.expect_error(404, -32600);
    }
    client.session = None;
    client.request("tools/list", json!({})).await.expect_error(400, -32600);
    assert_eq!(client.delete().await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_go_to_the_conversation_that_started_the_work() {
    let server = McpServer::start().await;
    let one = server.client("cook").await.connect().await;
    let two = one.again().connect().await;
    let started = json!({ "command": "echo soup", "background": true });
    one.call("run_process", started).await;
    let waited = two.call("wait_tasks", json!({})).await;
    assert_eq!(waited["structuredContent"]["ended"], json!([]), "{waited}");
    assert!(text(&waited).contains("of another conversation"), "{waited}");
    let waited = one.call("wait_tasks", json!({})).await;
    assert!(text(&waited).contains("soup"), "{waited}");
    // By name, the other conversation gets it too.
    let waited = two.call("wait_tasks", json!({ "tasks": ["process:1"] })).await;
    assert!(text(&waited).contains("soup"), "{waited}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_can_be_cancelled() {
    let server = McpServer::start().await;
    let client = server.client("cook").await.connect().await;
    client.call("run_process", json!({ "command": "sleep 60", "background": true })).await;
    let wait = client.message("tools/call", json!({ "name": "wait_tasks", "arguments": {} }));
    let id = wait["id"].clone();
    let wait = wait.to_string();
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let params = json!({ "requestId": id, "reason": "enough" });
        let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": params });
        assert_eq!(client.post(&cancelled.to_string()).await.status, 202);
    };
    let (waited, ()) = tokio::join!(client.post(&wait), cancel);
    assert!(waited.messages.is_empty(), "a cancelled request gets no reply: {}", waited.text);
    client.request("ping", json!({})).await.result();
    let listed = client.call("list_tasks", json!({})).await;
    assert!(text(&listed).contains("process:1"), "the task keeps running: {listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_streams_and_waits_end_with_the_server() {
    let server = McpServer::start().await;
    let client = server.client("cook").await.connect().await;
    let mut stream = client.listen().await;
    assert_eq!(stream.status(), 200);
    client.call("run_process", json!({ "command": "sleep 60", "background": true })).await;
    let params = json!({ "name": "wait_tasks", "arguments": { "tasks": ["process:1"] } });
    let wait = client.request_alone("tools/call", params);
    let restart = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.restart().await
    };
    let (waited, _server) = tokio::join!(wait, restart);
    assert!(waited.text.contains("the server shuts down"), "{waited:?}");
    while let Ok(Some(_)) = stream.chunk().await {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_has_a_bound_of_sessions() {
    let server = McpServer::start().await;
    let mut client = server.client("cook").await;
    let mut ids = Vec::new();
    for _ in 0..66 {
        client.session = None;
        client.initialize(LEGACY).await;
        ids.push(client.session.clone());
    }
    let mut found = 0;
    for id in ids {
        client.session = id;
        match client.request("ping", json!({})).await.status {
            200 => found += 1,
            status => assert_eq!(status, 404),
        }
    }
    assert_eq!(found, 64);
    assert_eq!(client.request("ping", json!({})).await.status, 200, "the newest is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unused_session_expires() {
    let clock = ManualClock::at(Time(1_000_000));
    let server = TestServer::start(|builder| builder.clock(Arc::new(clock.clone()))).await;
    let opened = server.post("/v1/sessions", json!({ "name": SESSION })).await.expect(201);
    let path = format!("/mcp/{}", opened["id"].as_str().unwrap());
    let used = McpClient::new(&server, &server.operator, &path).connect().await;
    let unused = McpClient::new(&server, &server.operator, &path).connect().await;
    for _ in 0..3 {
        clock.advance(DAY * 3);
        used.request("ping", json!({})).await.result();
    }
    unused.request("ping", json!({})).await.expect_error(404, -32600);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_keeps_a_conversation_present() {
    let clock = ManualClock::at(Time(1_000_000));
    let server = McpServer::start_with(|builder| builder.clock(Arc::new(clock.clone()))).await;
    let one = server.client("cook").await.connect().await;
    let two = one.again().connect().await;
    let stream = one.listen().await;
    assert_eq!(stream.status(), 200);
    one.call("run_process", json!({ "command": "echo soup", "background": true })).await;
    clock.advance(Duration::from_secs(600));
    let waited = two.call("wait_tasks", json!({})).await;
    assert_eq!(waited["structuredContent"]["ended"], json!([]), "{waited}");
    drop(stream);
    // The server notices a lost connection soon. Then the conversation lapses by the clock.
    let taken = loop {
        clock.advance(Duration::from_secs(61));
        let waited = two.call("wait_tasks", json!({})).await;
        if waited["structuredContent"]["ended"] != json!([]) {
            break waited;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(text(&taken).contains("soup"), "{taken}");
}
