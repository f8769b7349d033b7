//! MCP over HTTP: tokens, scopes, and requests that break the protocol.

use brigade_protocol::http::TokenScope;
use brigade_runtime::NewTask;
use serde_json::json;

use crate::mcp_client::{McpClient, McpServer, text};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_token_decides_the_session() {
    let server = McpServer::start().await;
    let TokenPaths { own, other } = TokenPaths::of(&server).await;
    for path in ["/mcp", own.as_str()] {
        McpClient::new(&server.server, "", path)
            .request("ping", json!({}))
            .await
            .expect_status(401);
    }
    let reader = server.server.create_token("eve", TokenScope::ReadOnly, None).await;
    for path in ["/mcp", own.as_str()] {
        let client = McpClient::new(&server.server, &reader, path);
        client.request("ping", json!({})).await.expect_status(403);
    }
    let operator = &server.server.operator;
    McpClient::new(&server.server, operator, "/mcp")
        .request("ping", json!({}))
        .await
        .expect_status(400);
    for path in ["/mcp/x", "/mcp/00000000-0000-4000-8000-000000000000"] {
        let client = McpClient::new(&server.server, operator, path);
        client.request("ping", json!({})).await.expect_status(404);
    }
    let session = Some(server.workspace.as_str());
    let secret = server.server.create_token("bob", TokenScope::Client, session).await;
    McpClient::new(&server.server, &secret, &other)
        .request("ping", json!({}))
        .await
        .expect_status(403);
    McpClient::new(&server.server, &secret, &own).connect().await;
    McpClient::new(&server.server, &secret, "/mcp").connect().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_does_not_learn_of_other_sessions() {
    let server = McpServer::start().await;
    server.server.post("/v1/sessions", json!({ "name": "pantry" })).await.expect(201);
    let client = server.scoped_client("bob").await;
    let read = async |session: &str| {
        let arguments = json!({ "task": format!("{session}/process:1") });
        text(&client.call_alone("read_output", arguments).await).replace(session, "SESSION")
    };
    let pantry = read("pantry").await;
    assert!(pantry.contains("forbidden"), "{pantry}");
    assert_eq!(pantry, read("cellar").await);
}

struct TokenPaths {
    own: String,
    other: String,
}

impl TokenPaths {
    async fn of(server: &McpServer) -> Self {
        let other = server.server.post("/v1/sessions", json!({ "name": "other" })).await;
        let other = other.expect(201)["id"].as_str().unwrap().to_owned();
        Self { own: format!("/mcp/{}", server.session_id), other: format!("/mcp/{other}") }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_tasks_has_its_own_sessions() {
    let server = McpServer::start().await;
    let TokenPaths { own, other } = TokenPaths::of(&server).await;
    let operator = &server.server.operator;
    let client = McpClient::new(&server.server, operator, &own).connect().await;
    let mut elsewhere = McpClient::new(&server.server, operator, &other);
    elsewhere.session.clone_from(&client.session);
    elsewhere.request("ping", json!({})).await.expect_error(404, -32600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_stays_in_its_session_and_in_a_sandbox() {
    let server = McpServer::start().await;
    let secret = server.server.runtime.session("secret").await.unwrap();
    let hidden = NewTask::shell("sleep 60").cwd("/tmp");
    secret.spawn(hidden).await.unwrap();
    let client = server.scoped_client("bob").await.connect().await;
    for task in ["secret/process:1", "nowhere/process:1"] {
        for tool in ["read_output", "stop_task"] {
            let refused = client.call(tool, json!({ "task": task })).await;
            assert_eq!(refused["isError"], true, "{tool} {task}: {refused}");
        }
        let refused = client.call("wait_tasks", json!({ "tasks": [task] })).await;
        assert!(!text(&refused).contains("sleep 60"), "{refused}");
    }
    assert!(secret.list().iter().all(|task| task.row.is_alive()), "nothing was stopped");

    let run = json!({ "command": "sleep 60", "background": true });
    client.call("run_process", run).await;
    let session = server.server.runtime.session(&server.workspace).await.unwrap();
    let tasks = session.list();
    let row = &tasks.last().unwrap().row;
    let sandbox = row.spec.work.sandbox().expect("a sandbox");
    let layer = &sandbox.layers[0];
    assert!(layer.write.iter().any(|path| **path == *server.workspace), "{layer:?}");
    for cwd in ["/", "..", "/tmp"] {
        let run = json!({ "command": "pwd", "cwd": cwd });
        let refused = client.call("run_process", run).await;
        assert_eq!(refused["isError"], true, "{cwd}: {refused}");
        assert!(text(&refused).contains("outside of the session's workspace"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_directory_needs_one_for_processes() {
    let server = McpServer::start().await;
    let TokenPaths { other, .. } = TokenPaths::of(&server).await;
    let operator = &server.server.operator;
    let client = McpClient::new(&server.server, operator, &other).connect().await;
    let refused = client.call("run_process", json!({ "command": "pwd" })).await;
    assert!(text(&refused).contains("belongs to no directory"), "{refused}");
    let refused = client.call("run_process", json!({ "command": "pwd", "cwd": "src" })).await;
    assert!(text(&refused).contains("belongs to no directory"), "{refused}");
    let run = json!({ "command": "pwd", "cwd": server.workspace });
    let ran = client.call("run_process", run).await;
    assert!(text(&ran).contains(&server.workspace), "{ran}");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_follow_the_protocol() {
    let server = McpServer::start().await;
    let client = server.client("cook").await.connect().await;
    let ping = || PING.as_bytes().to_vec();
    client.post_with(&[("accept", "application/json")], ping()).await.expect_error(406, -32600);
    client.post_with(&[("content-type", "text/plain")], ping()).await.expect_error(415, -32600);
    let version = [("mcp-protocol-version", "1999-01-01")];
    client.post_with(&version, ping()).await.expect_error(400, -32600);
    // A newer client says in each request what it is.
    let version = [("mcp-protocol-version", "2026-07-28")];
    client.post_with(&version, ping()).await.expect_error(400, -32602);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let list = client.message("tools/list", json!({ "_meta": meta })).to_string();
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call")];
    client.post_with(&headers, list.clone().into_bytes()).await.expect_error(400, -32020);
    let headers = [("mcp-protocol-version", "2026-07-28")];
    client.post_with(&headers, list.clone().into_bytes()).await.expect_error(400, -32020);
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    client.post_with(&headers, list.into_bytes()).await.result();
    let put = client.builder(reqwest::Method::PUT).send().await.unwrap();
    assert_eq!(put.status(), 405);
    assert_eq!(put.headers()["allow"], "GET, POST, DELETE");
    let get = client.builder(reqwest::Method::GET).header("accept", "text/html");
    assert_eq!(get.send().await.unwrap().status(), 406);
    for (name, value, status) in [("origin", "http://evil.test", 403), ("host", "evil.test", 421)] {
        let post = client.builder(reqwest::Method::POST).header(name, value).body(PING);
        assert_eq!(post.send().await.unwrap().status(), status, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_messages_get_an_error() {
    let server = McpServer::start().await;
    let client = server.client("cook").await.connect().await;
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":{deep}}}}}"#);
    for body in ["", "  ", "{", "\u{0}", "{\"jsonrpc\":\"2.0\",\"id\":1,", deep.as_str()] {
        client.post(body).await.expect_error(400, -32700);
    }
    client
        .post_with(&[], b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}".to_vec())
        .await
        .expect_error(400, -32700);
    let batch = format!("[{PING},{PING}]");
    for body in ["7", "[]", "null", r#""ping""#, "{}", batch.as_str()] {
        client.post(body).await.expect_error(400, -32600);
    }
    let answer = client.post(r#"{"id":"a","method":"tools/list"}"#).await;
    assert_eq!(answer.expect_error(400, -32600)["id"], "a");
    let unknown = r#"{"jsonrpc":"2.0","method":"notifications/nothing"}"#;
    assert_eq!(client.post(unknown).await.status, 202);
    client.request("no/such", json!({})).await.expect_error(200, -32601);
    client.request("tools/call", json!({ "name": 5 })).await.expect_error(200, -32602);
    client.request("tools/call", json!({ "name": "cook" })).await.expect_error(200, -32602);
    client.request_alone("no/such", json!({})).await.expect_error(404, -32601);
    let answer = r#"{"jsonrpc":"2.0","id":99,"result":{}}"#;
    assert_eq!(client.post(answer).await.status, 202, "an answer to no question is dropped");
    let marked = format!("\u{feff}{PING}");
    client.post(&marked).await.result();
    client.request("ping", json!({})).await.result();
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_are_refused() {
    let server = McpServer::start().await;
    let client = server.client("cook").await.connect().await;
    let large = "x".repeat(5 * 1024 * 1024);
    client.request("ping", json!({ "x": large })).await.expect_status(413);
    let mut other = client.again();
    // The parameters of a session are stored, so they have a bound of their own.
    let params = json!({ "protocolVersion": "2025-11-25",
        "capabilities": { "experimental": { "x": { "y": "x".repeat(100_000) } } },
        "clientInfo": { "name": "raw", "version": "1" } });
    other.request("initialize", params).await.expect_status(400);
    other.initialize("2025-11-25").await;
    client.request("ping", json!({})).await.result();
}
