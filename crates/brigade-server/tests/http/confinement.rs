//! The bounds of a client's token: nothing outside of its session and its sandbox.

use brigade_model::ids::TaskNo;
use brigade_model::work::Work;
use brigade_protocol::http::TokenScope;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::SESSION;
use crate::task_server::TaskServer;

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_alone_closes_sessions_and_changes_limits() {
    let server = TaskServer::start().await;
    let client = server.client("bob").await;
    let task = server.start_as(&client, json!({ "kind": "job", "job": "echo" })).await;
    let close = format!("/v1/sessions/{}/close", server.session);
    let closed = server.server.send_as(&client, Method::POST, &close, None).await;
    closed.expect_problem(403, "forbidden");
    let limits = format!("/v1/tasks/{task}/limits");
    let changed = server.server.send_as(&client, Method::PUT, &limits, Some(json!({}))).await;
    changed.expect_problem(403, "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_a_client_use_no_mcp_servers() {
    let server = TaskServer::start().await;
    let client = server.client("bob").await;
    let path = format!("/v1/sessions/{}/tasks", server.session);
    let body = json!({
        "kind": "agent", "prompt": "Bake.", "cwd": server.cwd(), "sandbox": {},
        "mcp_servers": ["files"],
    });
    let started = server.server.send_as(&client, Method::POST, &path, Some(body)).await;
    let detail = started.expect_problem(403, "forbidden");
    assert!(detail.contains("MCP servers"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_of_a_clients_agents_get_no_variables_of_the_server() {
    let server = TaskServer::start().await;
    let client = server.client("bob").await;
    let body = json!({ "kind": "agent", "prompt": "Bake.", "cwd": server.cwd(), "sandbox": {} });
    server.start_as(&client, body.clone()).await;
    server.start_as(&server.server.operator, body).await;
    let session = server.server.runtime.session(&server.cwd()).await.unwrap();
    let operator = server.server.runtime.operator_session(session.id()).await.unwrap();
    for (no, withholds) in [(1, true), (2, false)] {
        let task = operator.get(TaskNo::new(no).unwrap()).await.unwrap();
        let Work::Agent(agent) = &task.row.spec.work else { panic!("no agent") };
        let blueprint = agent.blueprint.as_str();
        assert_eq!(blueprint.contains(r#""withholds_variables":true"#), withholds, "{no}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_a_client_have_no_worktrees() {
    let server = TaskServer::start().await;
    let client = server.client("bob").await;
    let path = format!("/v1/sessions/{}/tasks", server.session);
    for body in [
        json!({ "kind": "agent", "prompt": "Bake.", "cwd": server.cwd() }),
        json!({ "kind": "process", "command": ["true"], "cwd": server.cwd() }),
    ] {
        let mut body = body;
        body["sandbox"] = json!({});
        body["worktree"] = json!(true);
        let started = server.server.send_as(&client, Method::POST, &path, Some(body)).await;
        let detail = started.expect_problem(403, "forbidden");
        assert!(detail.contains("worktree"), "{detail}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_a_named_session_names_no_directory() {
    let server = TaskServer::start().await;
    let session = server.server.post("/v1/sessions", json!({ "name": SESSION })).await.expect(201);
    let client = server.server.create_token("bob", TokenScope::Client, Some(SESSION)).await;
    let path = format!("/v1/sessions/{}/tasks", session["id"].as_str().unwrap());
    let start =
        async |body: Value| server.server.send_as(&client, Method::POST, &path, Some(body)).await;
    let process = json!({ "kind": "process", "command": ["true"], "cwd": "/", "sandbox": {} });
    start(process).await.expect_problem(403, "forbidden");
    start(json!({ "kind": "job", "job": "echo" })).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_no_client_of_the_socket_and_no_operator() {
    let server = TaskServer::start().await;
    let session = server.server.runtime.session_as(&server.cwd(), "bob").await.unwrap();
    let own = session.spawn(brigade_runtime::NewTask::job("ask", "Salt?")).await.unwrap();
    let client = server.client("bob").await;
    let path = format!("/v1/tasks/{}.{}/stop", server.session, own.no());
    let stopped = server.server.send_as(&client, Method::POST, &path, None).await;
    stopped.expect_problem(403, "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_without_a_token_sends_little() {
    let server = TaskServer::start().await;
    let body = json!({ "code": "x".repeat(2_000) });
    let login = server.server.send_as("", Method::POST, "/v1/login", Some(body)).await;
    login.expect_problem(413, "limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_over_a_transcript_is_bounded() {
    let server = TaskServer::start().await;
    let task = server.start_baker().await;
    let pattern = "(?:[a-z ]{1,300}){1,40}[^Y]Z?[0-9]".replace('[', "%5B").replace(']', "%5D");
    let pattern = pattern.replace('{', "%7B").replace('}', "%7D").replace('^', "%5E");
    let searched = server.get(&task, &format!("/output/search?pattern={pattern}")).await;
    searched.expect_problem(400, "invalid");
}
