//! Requests that are wrong, too large, too slow, or from elsewhere.

use std::time::Duration;

use brigade_protocol::http::TokenScope;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{TEST_TIMEOUT, TestServer};

/// Sends raw bytes and returns the first bytes of the answer.
async fn send_raw(server: &TestServer, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(request).await;
    let mut answer = vec![0; 64 * 1024];
    let read = timeout(TEST_TIMEOUT, stream.read(&mut answer)).await.unwrap().unwrap_or(0);
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn other_hosts_and_origins_are_refused() {
    let server = TestServer::start(|builder| builder).await;
    let send = async |headers: &str| {
        let request = format!("GET /v1/whoami HTTP/1.1\r\n{headers}\r\n\r\n");
        send_raw(&server, request.as_bytes()).await
    };
    let answer = send("Host: evil.test").await;
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    let answer = send("Host: localhost\r\nOrigin: http://evil.test").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let answer = send("Host: localhost\r\nSec-Fetch-Site: same-site").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let answer = send("Host: localhost").await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(answer.contains("frame-ancestors 'none'"), "{answer}");
    assert!(answer.contains("cache-control: no-store"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_requests_are_refused() {
    let server = TestServer::start(|builder| builder).await;
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    let answer = send_raw(&server, long.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: 1\r\n".repeat(100));
    let answer = send_raw(&server, many.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let body = json!({ "name": "x".repeat(5 * 1024 * 1024) });
    server.post("/v1/sessions", body).await.expect_problem(413, "limit");
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let client = server.client();
    let request = client.post(server.url("/v1/sessions")).bearer_auth(&server.operator);
    let request = request.header("content-type", "application/json").body(deep);
    assert_eq!(request.send().await.unwrap().status(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_answer_does_not_break_a_client_that_sends_on() {
    const BODY: usize = 8 * 1024 * 1024;
    let server = TestServer::start(|builder| builder).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head =
        format!("POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&[b' '; 64 * 1024]).await.unwrap();
    let mut answer = String::new();
    let read = timeout(TEST_TIMEOUT, stream.read_to_string(&mut answer)).await.unwrap();
    read.expect("an answer, and no reset");
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    stream.write_all(&vec![b' '; BODY - 64 * 1024]).await.expect("the server reads on");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bodies_than_json_are_refused() {
    let server = TestServer::start(|builder| builder).await;
    let client = server.client();
    let post = |kind: &'static str, body: &'static [u8]| {
        let request = client.post(server.url("/v1/sessions")).bearer_auth(&server.operator);
        request.header("content-type", kind).body(body).send()
    };
    assert_eq!(post("text/plain", b"{}").await.unwrap().status(), 415);
    assert_eq!(post("application/json", b"{").await.unwrap().status(), 400);
    assert_eq!(post("application/json", b"{\"name\":\"\xff\"}").await.unwrap().status(), 400);
    let wrong = server.send(Method::PUT, "/v1/sessions", Some(json!({}))).await;
    assert!(wrong.headers.contains_key("allow"));
    wrong.expect_problem(405, "invalid");
    server.get("/v1/nothing").await.expect_problem(404, "not_found");
    for path in
        ["/v1/../v1/tasks", "/v1/tasks/..", "/v1/%2e%2e/tasks", "/v1/tasks%00", "/v1//tasks"]
    {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
            server.operator
        );
        let answer = send_raw(&server, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_do_not_hold_others_up() {
    let server = TestServer::start(|builder| builder).await;
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: local").await.unwrap();
        idle.push(stream);
    }
    let answer = timeout(Duration::from_secs(10), server.get("/v1/whoami")).await;
    answer.unwrap().expect(200);
}

/// 33 bodies, each one byte short of its end, have more bytes than the server takes at once. A
/// token has a share for four.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_in_memory_are_bounded() {
    const BODY: usize = 2 * 1024 * 1024;
    let server = TestServer::start(|builder| builder).await;
    let mut secrets = Vec::new();
    for number in 0..9 {
        let name = format!("cook{number}");
        secrets.push(server.create_token(&name, TokenScope::Operator, None).await);
    }
    let open = async |secret: &String| {
        let head = format!(
            "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\
             Content-Type: application/json\r\nContent-Length: {BODY}\r\n\r\n"
        );
        let part = [head.as_bytes(), &vec![b' '; BODY - 1]].concat();
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // The server answers and closes before it has read everything, if it has no memory.
        let _ = stream.write_all(&part).await;
        stream
    };
    let mut streams =
        futures_util::future::join_all((0..33).map(|it| open(&secrets[it / 4]))).await;
    let answered = streams.iter_mut().enumerate().map(|(index, stream)| {
        Box::pin(async move {
            let mut answer = vec![0; 4096];
            let read = stream.read(&mut answer).await.unwrap_or(0);
            (index, String::from_utf8_lossy(&answer[..read]).into_owned())
        })
    });
    let answered = timeout(TEST_TIMEOUT, futures_util::future::select_all(answered));
    let ((refused, answer), _, _) = answered.await.expect("a refusal");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("retry-after: 1"), "{answer}");
    drop(streams.swap_remove(refused));
    for stream in &mut streams {
        let _ = stream.write_all(b" ").await;
        let mut answer = vec![0; 4096];
        let read = timeout(TEST_TIMEOUT, stream.read(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]);
        // Two bodies that reach the bound at the same time are both refused.
        let is_answered =
            ["HTTP/1.1 400 ", "HTTP/1.1 503 "].iter().any(|it| answer.starts_with(it));
        assert!(is_answered, "{answer}");
    }
    let large = json!({ "name": "x".repeat(BODY - 100) });
    server.post("/v1/sessions", large).await.expect_problem(400, "invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_parameters_are_answered_in_one_sentence() {
    let server = TestServer::start(|builder| builder).await;
    let task_id =
        "this is not the id of a task: it is the id of its session, a point, and its number";
    let session = "019a92b4-7c51-7c3e-9d0b-4f0d6c1f2a3b";
    for (path, status, code, expect) in [
        ("/v1/tasks/zzz".to_owned(), 404, "not_found", task_id),
        ("/v1/tasks/zzz/runs/1".to_owned(), 404, "not_found", task_id),
        (format!("/v1/tasks/{session}.1/runs/x"), 404, "not_found", "\"x\" is not a number"),
        ("/v1/tasks/%FF".to_owned(), 404, "not_found", "task is not UTF-8"),
        (
            "/v1/tasks?limit=x".to_owned(),
            400,
            "invalid",
            "the query is wrong: limit: invalid digit",
        ),
        (
            "/v1/tasks?color=red".to_owned(),
            400,
            "invalid",
            "the query is wrong: unknown field `color`",
        ),
    ] {
        let detail = server.get(&path).await.expect_problem(status, code);
        assert!(detail.starts_with(expect), "{path}: {detail}");
    }
}
