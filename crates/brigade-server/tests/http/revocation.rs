//! The end of a token ends everything that was opened with it.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::ids::Time;
use brigade_protocol::http::TokenScope;
use brigade_protocol::requests::{CreateTokenRequest, RevokeTokenRequest};
use brigade_store::{MemoryStore, RecordKind, RecordQuery};
use brigade_testkit::{CrashStore, ManualClock};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::mcp_client::{LEGACY, McpServer, text};
use crate::sse_client::SseClient;
use crate::support::{SESSION, TEST_TIMEOUT, TestServer};
use crate::task_server::TaskServer;

async fn token_id(server: &TestServer, secret: &str) -> String {
    let me = server.send_as(secret, Method::GET, "/v1/whoami", None).await.expect(200);
    me["token"]["id"].as_str().unwrap().to_owned()
}

async fn revoke(server: &TestServer, secret: &str) {
    let id = token_id(server, secret).await;
    server.connect().await.call(RevokeTokenRequest { id }).await.unwrap();
}

/// The clock stands still, so no heartbeat finds out.
#[tokio::test]
async fn a_revocation_ends_streams_at_once() {
    let server = TaskServer::start().await;
    let secret = server.server.create_token("eve", TokenScope::ReadOnly, None).await;
    let task = server.start_shell("echo soup; sleep 60").await;
    let mut streams = Vec::new();
    for path in ["/v1/events".to_owned(), format!("/v1/tasks/{task}/output/stream")] {
        let mut stream = SseClient::open_as(&server.server, &secret, &path, None).await.unwrap();
        stream.next().await.expect("a first event");
        streams.push(stream);
    }
    revoke(&server.server, &secret).await;
    let ended_at = tokio::time::Instant::now();
    for stream in &mut streams {
        let last = loop {
            let event = stream.next().await.expect("the reason of the end");
            assert_ne!(event.event, "heartbeat", "after {:?}", ended_at.elapsed());
            if event.event == "error" {
                break event;
            }
        };
        assert_eq!(last.data["code"], "unauthenticated");
        assert!(stream.next().await.is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_wait_gets_and_collects_nothing() {
    let server = TaskServer::start().await;
    let client = server.client("bob").await;
    let job = json!({ "kind": "job", "job": "echo", "arguments": null });
    let task = server.start_as(&client, job).await;
    let mut wait = server.open_wait(&client, &task).await;
    revoke(&server.server, &client).await;
    server.post(&task, "messages", json!({ "body": "soup" })).await.expect(202);
    server.wait(&task).await;
    let mut answer = vec![0; 4096];
    let read = timeout(TEST_TIMEOUT, wait.read(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert_eq!(server.get(&task, "").await.expect(200)["collected"], false);
}

/// Only the answer can tell the client what has happened.
#[tokio::test(flavor = "multi_thread")]
async fn changes_that_are_committed_when_the_token_ends_are_answered() {
    let store = CrashStore::new(Arc::new(MemoryStore::new()), None);
    let dir = tempfile::tempdir().unwrap();
    let shared = store.clone();
    let server = TaskServer::start_with(dir, |builder, _| builder.shared_store(shared)).await;
    let job = json!({ "kind": "job", "job": "echo", "arguments": null });
    let sessions = format!("/v1/sessions/{}", server.session);
    let send_while_revoked = async |secret: &str, path: &str, body: Value| {
        let id = token_id(&server.server, secret).await;
        let connection = server.server.connect().await;
        let held = store.hold_commits();
        let path = format!("{sessions}/{path}");
        let sent = server.server.send_as(secret, Method::POST, &path, Some(body));
        let (sent, ()) = tokio::join!(sent, async {
            timeout(TEST_TIMEOUT, held.wait_held()).await.unwrap();
            connection.call(RevokeTokenRequest { id }).await.unwrap();
            drop(held);
        });
        sent
    };
    let starter = server.client("bob").await;
    let started = send_while_revoked(&starter, "tasks", job.clone()).await.expect(201);
    let started = started["id"].as_str().unwrap();
    server.get(started, "").await.expect(200);

    let waiter = server.client("eve").await;
    let task = server.start_as(&waiter, job).await;
    server.post(&task, "messages", json!({ "body": "soup" })).await.expect(202);
    server.wait(&task).await;
    let waited = send_while_revoked(&waiter, "wait", json!({ "tasks": [task] })).await;
    assert_eq!(waited.expect(200)["ended"][0]["id"], task.as_str());
    assert_eq!(server.get(&task, "").await.expect(200)["collected"], true);
}

/// A request begins when its body has arrived.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_arrives_after_the_revocation_changes_nothing() {
    let server = TaskServer::start().await;
    let client = server.client("bob").await;
    let id = token_id(&server.server, &client).await;
    let body = json!({ "kind": "job", "job": "echo", "arguments": null }).to_string();
    let head = format!(
        "POST /v1/sessions/{}/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {client}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        server.session,
        body.len()
    );
    let mut stream = TcpStream::connect(server.server.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let read = timeout(TEST_TIMEOUT, stream.read(&mut answer)).await.unwrap().unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 100 "));
    server.server.connect().await.call(RevokeTokenRequest { id }).await.unwrap();
    // The server may have closed the connection.
    let _ = stream.write_all(body.as_bytes()).await;
    let read = timeout(TEST_TIMEOUT, stream.read(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let path = format!("/v1/sessions/{}/tasks", server.session);
    let listed = server.server.get(&path).await.expect(200);
    assert_eq!(listed["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_ends_the_sessions_of_mcp_clients() {
    let server = McpServer::start().await;
    let client = server.scoped_client("cook").await.connect().await;
    let other = server.scoped_client("waiter").await.connect().await;
    let mut stream = client.listen().await;
    assert_eq!(stream.status(), 200);
    client.call("run_process", json!({ "command": "sleep 60", "background": true })).await;
    let wait = client.message("tools/call", json!({ "name": "wait_tasks", "arguments": {} }));
    let wait = wait.to_string();
    let ended = async {
        revoke(&server.server, client.secret()).await;
        while let Ok(Some(_)) = stream.chunk().await {}
    };
    let (waited, ()) = tokio::join!(client.post_until_cut(&wait), async {
        timeout(TEST_TIMEOUT, ended).await.unwrap()
    });
    // The answer of a call in a session is a stream, which may have begun.
    assert!(!waited.contains("process:1"), "{waited}");
    client.request("ping", json!({})).await.expect_status(401);
    let query = RecordQuery::new(RecordKind::from_static("mcp-session"));
    let stored = server.server.runtime.records().list(&query).await.unwrap().items;
    assert_eq!(stored.len(), 1, "the session of the other client is left");
    other.request("ping", json!({})).await.result();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_mcp_session_ends_its_waits() {
    let server = McpServer::start().await;
    let client = server.client("cook").await.connect().await;
    let process = json!({ "command": "sleep 60", "background": true });
    client.call("run_process", process).await;
    let wait = json!({
        "name": "wait_tasks", "arguments": { "tasks": ["process:1"] },
        "_meta": { "progressToken": 1 },
    });
    let wait = client.message("tools/call", wait).to_string();
    let mut waiting = client.open_post(&wait).await;
    // The wait runs when it tells its progress.
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains("notifications/progress") {
        let chunk = timeout(TEST_TIMEOUT, waiting.chunk()).await.unwrap().unwrap();
        text.extend(chunk.expect("progress"));
    }
    client.delete().await.expect_status(204);
    let task = format!("/v1/tasks/{}.1", server.session_id);
    server.server.post(&format!("{task}/stop"), json!({})).await;
    let path = format!("/v1/sessions/{}/wait", server.session_id);
    let tasks = json!({ "tasks": [format!("{}.1", server.session_id)] });
    server.server.post(&path, tasks).await.expect(200);
    assert_eq!(server.server.get(&task).await.expect(200)["collected"], false);
}

/// The wait lists the other tasks after it has collected a result, which only its reply has.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_of_mcp_that_is_committed_when_the_token_ends_is_answered() {
    let store = CrashStore::new(Arc::new(MemoryStore::new()), None);
    let shared = store.clone();
    let server = McpServer::start_with(|builder| builder.shared_store(shared)).await;
    let client = server.client("cook").await;
    let process = json!({ "command": "exit 7", "background": true });
    client.call_alone("run_process", process).await;
    let path = format!("/v1/sessions/{}/wait", server.session_id);
    let task = format!("{}.1", server.session_id);
    server.server.post(&path, json!({ "tasks": [task] })).await.expect(200);
    let id = token_id(&server.server, client.secret()).await;
    let connection = server.server.connect().await;
    let held = store.hold_commits();
    let (waited, ()) = tokio::join!(client.call_alone("wait_tasks", json!({})), async {
        timeout(TEST_TIMEOUT, held.wait_held()).await.unwrap();
        connection.call(RevokeTokenRequest { id }).await.unwrap();
        drop(held);
    });
    let waited = text(&waited);
    assert!(waited.contains("process:1") && waited.contains('7'), "{waited}");
    let task = server.server.get(&format!("/v1/tasks/{task}")).await.expect(200);
    assert_eq!(task["collected"], true);
}

/// Sessions in memory that are not stored would not be bounded.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_client_disconnects_meanwhile_is_stored() {
    let store = CrashStore::new(Arc::new(MemoryStore::new()), None);
    let shared = store.clone();
    let server = McpServer::start_with(|builder| builder.shared_store(shared)).await;
    let client = server.scoped_client("cook").await;
    let params = json!({ "protocolVersion": LEGACY, "capabilities": {},
        "clientInfo": { "name": "raw", "version": "1" } });
    let initialize = client.message("initialize", params).to_string();
    let held = store.hold_puts();
    tokio::select! {
        biased;
        response = client.open_post(&initialize) => panic!("{response:?}"),
        () = held.wait_held() => {}
    }
    // The connection is closed now. The server notices it while it serves others.
    for _ in 0..20 {
        server.server.get("/healthz").await.expect(200);
    }
    drop(held);
    let query = RecordQuery::new(RecordKind::from_static("mcp-session"));
    let stored = async {
        while server.server.runtime.records().list(&query).await.unwrap().items.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, stored).await.unwrap();
}

/// The revocation lists the sessions of the token before this one is stored.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_stored_during_the_revocation_is_removed() {
    let store = CrashStore::new(Arc::new(MemoryStore::new()), None);
    let shared = store.clone();
    let server = McpServer::start_with(|builder| builder.shared_store(shared)).await;
    let client = server.scoped_client("cook").await;
    let id = token_id(&server.server, client.secret()).await;
    let connection = server.server.connect().await;
    let params = json!({ "protocolVersion": LEGACY, "capabilities": {},
        "clientInfo": { "name": "raw", "version": "1" } });
    let held = store.hold_puts();
    let (opened, ()) = tokio::join!(client.request("initialize", params), async {
        timeout(TEST_TIMEOUT, held.wait_held()).await.unwrap();
        connection.call(RevokeTokenRequest { id }).await.unwrap();
        drop(held);
    });
    opened.expect_status(401);
    let query = RecordQuery::new(RecordKind::from_static("mcp-session"));
    let stored = server.server.runtime.records().list(&query).await.unwrap().items;
    assert!(stored.is_empty(), "{stored:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_revokes_itself_and_gets_an_answer() {
    let server = TestServer::start(|builder| builder).await;
    let secret = server.create_token("eve", TokenScope::ReadOnly, None).await;
    let mut stream = SseClient::open_as(&server, &secret, "/v1/events", None).await.unwrap();
    stream.expect("cursor").await;
    server.send_as(&secret, Method::POST, "/v1/logout", None).await.expect(204);
    assert_eq!(stream.expect("error").await.data["code"], "unauthenticated");
    let id = token_id(&server, &server.operator).await;
    server.send(Method::DELETE, &format!("/v1/tokens/{id}"), None).await.expect(204);
    server.get("/v1/whoami").await.expect_problem(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_expiry_of_a_token_ends_what_it_opened() {
    let clock = ManualClock::at(Time(1_000_000));
    let server = TestServer::start(|builder| builder.clock(Arc::new(clock.clone()))).await;
    server.runtime.session(SESSION).await.unwrap();
    let token = CreateTokenRequest {
        name: "eve".to_owned(),
        scope: TokenScope::ReadOnly,
        session: None,
        expires_in_ms: Some(60_000),
    };
    let secret = server.connect().await.call(token).await.unwrap().secret;
    let mut stream = SseClient::open_as(&server, &secret, "/v1/events", None).await.unwrap();
    stream.expect("cursor").await;
    clock.advance(Duration::from_secs(59));
    token_id(&server, &secret).await;
    clock.advance(Duration::from_secs(1));
    assert_eq!(stream.expect("error").await.data["code"], "unauthenticated");
    assert!(stream.next().await.is_none());
}
