//! Authors of changes: each names the token, the terminal or the task that caused it.

use brigade_protocol::frames::ClientRole;
use brigade_protocol::http::TokenScope;
use brigade_protocol::requests::StopRequest;
use brigade_protocol::{DaemonConnection, TaskTarget};
use reqwest::Method;
use serde_json::{Value, json};

use crate::task_server::TaskServer;

/// A token that a test made.
struct MadeToken {
    id: String,
    secret: String,
}

impl MadeToken {
    async fn new(server: &TaskServer, name: &str) -> Self {
        let body = json!({ "name": name, "scope": "operator" });
        let made = server.server.post("/v1/tokens", body).await.expect(201);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self { id: text(&made["token"]["id"]), secret: text(&made["secret"]) }
    }

    fn author(&self, name: &str) -> Value {
        json!({ "kind": "operator", "origin": format!("token {name} ({})", self.id) })
    }
}

/// Returns the changes of a session that have this type.
async fn changes(server: &TaskServer, kind: &str) -> Vec<Value> {
    let path = format!("/v1/sessions/{}/events?types={kind}", server.session);
    let page = server.server.get(&path).await.expect(200);
    page["items"].as_array().unwrap().clone()
}

async fn authors(server: &TaskServer, kind: &str) -> Vec<Value> {
    changes(server, kind).await.into_iter().map(|change| change["by"].clone()).collect()
}

async fn post_as(server: &TaskServer, secret: &str, task: &str, action: &str, body: Value) {
    let path = format!("/v1/tasks/{task}/{action}");
    let response = server.server.send_as(secret, Method::POST, &path, Some(body)).await;
    assert!(response.status.is_success(), "{path}: {}", response.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_names_the_token_that_caused_it() {
    let server = TaskServer::start().await;
    let laptop = MadeToken::new(&server, "laptop").await;
    let phone = MadeToken::new(&server, "phone").await;

    let baker = server.start_baker().await;
    let approval = server.wait(&baker).await["pending_approvals"][0]["approval"].clone();
    let verdict = json!({ "verdict": "allow_once", "digest": approval["digest"] });
    let action = format!("approvals/{}", approval["call"]);
    post_as(&server, &phone.secret, &baker, &action, verdict).await;
    server.wait(&baker).await;
    assert_eq!(authors(&server, "approval_decided").await, [phone.author("phone")]);

    let asking = server.start_job("ask", json!("Salt?")).await;
    server.wait(&asking).await;
    post_as(&server, &laptop.secret, &asking, "messages", json!({ "body": "salt" })).await;
    assert_eq!(authors(&server, "message_sent").await.last(), Some(&laptop.author("laptop")));
    // A task that waits ends with the stop. One that runs ends later, and nobody ordered that.
    post_as(&server, &laptop.secret, &asking, "stop", json!({})).await;
    let running = server.start_shell("exec sleep 60").await;
    while server.get(&running, "").await.expect(200)["state"] != "running" {
        tokio::task::yield_now().await;
    }
    post_as(&server, &phone.secret, &running, "stop", json!({})).await;
    server.wait(&running).await;
    assert_eq!(authors(&server, "stop_requested").await, [phone.author("phone")]);
    let ends = changes(&server, "ended").await;
    let end_of = |task: &str| ends.iter().find(|end| end["task"] == json!(task)).unwrap();
    assert_eq!(end_of(&asking)["by"], laptop.author("laptop"));
    assert_eq!(end_of(&running).get("by"), None);
    assert_eq!(end_of(&baker).get("by"), None);

    let path = format!("/v1/sessions/{}/events", server.session);
    let all = server.server.get(&path).await.expect(200).to_string();
    for secret in [&laptop.secret, &phone.secret, &server.server.operator] {
        assert!(!all.contains(secret.as_str()));
        assert!(!all.contains(secret.trim_start_matches("brg_")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_token_of_the_same_name_is_another_author() {
    let server = TaskServer::start().await;
    let body = json!({ "kind": "job", "job": "echo", "arguments": 1 });
    let first = MadeToken::new(&server, "laptop").await;
    server.start_as(&first.secret, body.clone()).await;
    let path = format!("/v1/tokens/{}", first.id);
    server.server.send(Method::DELETE, &path, None).await.expect(204);
    let second = MadeToken::new(&server, "laptop").await;
    server.start_as(&second.secret, body).await;
    let expected = [first.author("laptop"), second.author("laptop")];
    assert_ne!(expected[0], expected[1]);
    assert_eq!(authors(&server, "spawned").await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_of_a_browser_is_not_a_token_of_that_name() {
    let server = TaskServer::start().await;
    let body = json!({ "kind": "job", "job": "echo", "arguments": 1 });
    let code = server.server.create_login_code().await;
    let login = Some(json!({ "code": code }));
    let login = server.server.send_as("", Method::POST, "/v1/login", login).await.expect(200);
    let id = login["token"]["id"].as_str().unwrap();
    server.start_as(login["secret"].as_str().unwrap(), body.clone()).await;
    let imitation = MadeToken::new(&server, "dashboard").await;
    server.start_as(&imitation.secret, body).await;
    let browser = json!({ "kind": "operator", "origin": format!("dashboard ({id})") });
    let expected = [browser, imitation.author("dashboard")];
    assert_eq!(authors(&server, "spawned").await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_and_a_task_are_authors_of_their_own_kind() {
    let server = TaskServer::start().await;
    let client = server.client("bob").await;
    let body = json!({ "kind": "job", "job": "cook" });
    let cook = server.start_as(&client, body).await;
    let mut spawned = authors(&server, "spawned").await;
    while spawned.len() < 2 {
        tokio::task::yield_now().await;
        spawned = authors(&server, "spawned").await;
    }
    assert_eq!(spawned[0]["kind"], "client");
    assert_eq!(spawned[0]["name"], "token:bob");
    let origin = spawned[0]["origin"].as_str().unwrap();
    assert!(origin.starts_with("token bob ("), "{origin}");
    assert_eq!(spawned[1], json!({ "kind": "task", "task": cook }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_at_the_socket_is_described_by_the_kernel() {
    let server = TaskServer::start().await;
    let task = server.start_job("ask", json!("Salt?")).await;
    server.wait(&task).await;
    let number = task.rsplit('.').next().unwrap().to_owned();
    // The name of a client is its own choice. The rest is what the kernel says about the process.
    let name = format!("eve\u{1b}[2J\n{}", "x".repeat(10_000));
    let role = ClientRole::SharedClient(name);
    let eve = DaemonConnection::connect(&server.server.state_dir, role).await.unwrap();
    let target = TaskTarget { session: server.cwd(), task: number };
    let stop = StopRequest { target, reason: None, grace_ms: None };
    eve.call(stop).await.unwrap();
    let by = &authors(&server, "ended").await[0];
    assert_eq!(by["kind"], "client");
    let shown = by["name"].as_str().unwrap();
    assert!(shown.starts_with("eve\u{fffd}[2J xx") && shown.chars().count() < 200, "{shown}");
    let origin = by["origin"].as_str().unwrap();
    let own = format!("process {} (", std::process::id());
    assert!(origin.starts_with(&own) || origin.starts_with("terminal "), "{origin}");
    let scope = TokenScope::ReadOnly;
    let reader = server.server.create_token("reader", scope, None).await;
    let before = server.server.runtime.cursor();
    let path = format!("/v1/tasks/{task}/stop");
    let refused = server.server.send_as(&reader, Method::POST, &path, Some(json!({}))).await;
    assert!(refused.status.is_client_error());
    assert_eq!(server.server.runtime.cursor(), before, "a refusal is no event");
}
