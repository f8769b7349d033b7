//! Bytes that no ordinary client sends: requests on a bare socket.

use std::time::Duration;

use brigade_protocol::http::TokenScope;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{TEST_TIMEOUT, TestServer};

/// The bytes after which a client without an end counts as accepted.
const ENDLESS_BYTES: usize = 64 * 1024 * 1024;

impl TestServer {
    /// Sends bytes, and returns all that the server answers until it closes the connection.
    async fn exchange(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(request).await;
        read_to_close(&mut stream).await
    }

    /// Sends a request of the operator with these headers, and returns the answer.
    async fn ask(&self, line: &[u8], headers: &[u8], body: &[u8]) -> String {
        let token = format!("Authorization: Bearer {}\r\n", self.operator);
        let host = b"Host: localhost\r\nConnection: close\r\n";
        let head: [&[u8]; 7] = [line, b"\r\n", host, token.as_bytes(), headers, b"\r\n", body];
        self.exchange(&head.concat()).await
    }

    async fn get_raw(&self, target: &str) -> String {
        self.ask(format!("GET {target} HTTP/1.1").as_bytes(), b"", b"").await
    }
}

async fn read_to_close(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // A reset is an end too.
    let _ = timeout(TEST_TIMEOUT, stream.read_to_end(&mut answer)).await.expect("an end");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Fails unless the answer has one of these statuses. An empty answer is a closed connection.
#[track_caller]
fn expect_status(answer: &str, statuses: &[u16]) {
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    assert!(status.is_some_and(|status| statuses.contains(&status)), "{statuses:?}: {answer}");
    assert!(!answer.contains("brg_"), "no token is told: {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_and_bodies_without_an_end_are_refused() {
    let server = TestServer::start(|builder| builder).await;
    let token = &server.operator;
    let chunked = format!(
        "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    let line = format!("X-Line: {}\r\n", "x".repeat(1000));
    let head = "GET / HTTP/1.1\r\nHost: localhost\r\n";
    for (start, part, status) in [
        (head, line.as_str(), 431),
        (head, "X-Short: 1\r\n", 431),
        ("GET /", "x", 431),
        (head, "X-Long: x", 431),
        (&chunked, &chunk, 413),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(start.as_bytes()).await.unwrap();
        let mut sent = 0;
        let part = part.repeat(1 + 4096 / part.len());
        while sent < ENDLESS_BYTES && stream.write_all(part.as_bytes()).await.is_ok() {
            sent += part.len();
        }
        assert!(sent < ENDLESS_BYTES, "{start:?} has no end");
        let answer = read_to_close(&mut stream).await;
        // The reset that follows unread bytes may overtake the answer.
        if !answer.is_empty() {
            expect_status(&answer, &[status, 414]);
        }
    }
    server.get("/v1/whoami").await.expect(200);
}

#[tokio::test]
async fn slow_headers_lose_their_connection() {
    let server = TestServer::start(|builder| builder).await;
    for start in ["", "GET", "GET / HTTP/1.1\r\nHost: local", "\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(start.as_bytes()).await.unwrap();
        // Another connection is answered after this one was accepted.
        server.get("/v1/whoami").await.expect(200);
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(21)).await;
        tokio::time::resume();
        let answer = read_to_close(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
}

#[tokio::test]
async fn a_slow_body_is_told_and_its_connection_closed() {
    let server = TestServer::start(|builder| builder).await;
    let request = format!(
        "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        server.operator
    );
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    server.get("/v1/whoami").await.expect(200);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    let answer = read_to_close(&mut stream).await;
    expect_status(&answer, &[408]);
    assert!(answer.contains(r#""code":"limit""#), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_that_is_not_utf_8_is_refused() {
    let server = TestServer::start(|builder| builder).await;
    let get =
        async |target: &[u8]| server.ask(&[b"GET ", target, b" HTTP/1.1"].concat(), b"", b"").await;
    for target in [&b"/v1/sessions/\xff"[..], b"/v1/tasks?text=\xff", b"/\xc3\x28"] {
        expect_status(&get(target).await, &[400, 404]);
    }
    for target in ["/v1/sessions/%ff", "/v1/tasks/%c3%28/output", "/assets/%ff", "/%ff"] {
        let answer = get(target.as_bytes()).await;
        expect_status(&answer, &[404]);
        assert!(answer.contains("application/problem+json"), "{answer}");
    }
    let session = server.post("/v1/sessions", json!({ "name": "pot" })).await.expect(201);
    let tasks = format!("POST /v1/sessions/{}/tasks HTTP/1.1", session["id"].as_str().unwrap());
    let post = async |headers: &[u8], body: &[u8]| {
        let length = format!("Content-Length: {}\r\n", body.len());
        let kind = b"Content-Type: application/json\r\n";
        let headers = [headers, kind, length.as_bytes()].concat();
        server.ask(tasks.as_bytes(), &headers, body).await
    };
    let job = br#"{"kind":"job","job":"echo"}"#;
    expect_status(&post(b"Idempotency-Key: \xff\r\n", job).await, &[400]);
    expect_status(&post(b"", b"{\"kind\":\"job\",\"job\":\"\xff\"}").await, &[400]);
    expect_status(&post(b"", br#"{"kind":"job","job":"\ud800"}"#).await, &[400]);
    let events = b"GET /v1/events HTTP/1.1";
    expect_status(&server.ask(events, b"Last-Event-ID: \xff\r\n", b"").await, &[400]);
    let foreign = b"GET /v1/tasks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
        Authorization: Bearer \xff\r\n\r\n";
    expect_status(&server.exchange(foreign).await, &[401]);
    let host = b"GET /healthz HTTP/1.1\r\nHost: local\xffhost\r\nConnection: close\r\n\r\n";
    expect_status(&server.exchange(host).await, &[400]);
    server.get("/v1/whoami").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn tricks_with_paths_find_nothing() {
    let server = TestServer::start(|builder| builder).await;
    for target in [
        "/v1/..%2fv1/whoami",
        "/v1/..%2Fwhoami",
        "/v1/%2e%2e%2fv1%2fwhoami",
        "/v1/%252e%252e/whoami",
        "/v1/..%5cwhoami",
        "/v1/..;/whoami",
        "/v1/./whoami",
        "/V1/whoami",
        "/v1/whoami/",
        "/v1/whoami%00",
        "/v1/whoami%20",
        "/v1/%77hoam%69%00.html",
        "/assets/..%2fopenapi.json",
        "/assets/%2e%2e%2f%2e%2e%2fCargo.toml",
        "/assets/..%252f..%252fCargo.toml",
        "/assets//etc/passwd",
        "/assets/%2fetc%2fpasswd",
        "/assets/main.js%00.html",
        "/assets/",
        "/../../../etc/passwd",
    ] {
        expect_status(&server.get_raw(target).await, &[404]);
    }
    // A path that looks public only after it is decoded needs a token, and exists nowhere.
    for target in ["/assets%2fmain.js", "/%61ssets/main.js/..", "/healthz/..", "/x/../healthz"] {
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        expect_status(&server.exchange(request.as_bytes()).await, &[401]);
    }
    for target in ["/v1/who\u{0}ami", "whoami", "/v1/who ami", ""] {
        expect_status(&server.get_raw(target).await, &[400, 404, 421]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_url_as_the_target_names_this_server() {
    let server = TestServer::start(|builder| builder).await;
    expect_status(&server.get_raw("http://localhost/v1/whoami").await, &[200]);
    // The host of the target would win over the header, so they must agree.
    expect_status(&server.get_raw("http://evil.test/v1/whoami").await, &[400, 421]);
    expect_status(&server.get_raw("http://localhost@evil.test/v1/whoami").await, &[400, 421]);
    let connect = server.ask(b"CONNECT localhost:443 HTTP/1.1", b"", b"").await;
    expect_status(&connect, &[400, 404, 405, 421]);
    let options = server.ask(b"OPTIONS * HTTP/1.1", b"", b"").await;
    expect_status(&options, &[400, 404, 405]);
}

#[tokio::test(flavor = "multi_thread")]
async fn older_and_newer_versions_of_http() {
    let server = TestServer::start(|builder| builder).await;
    let with_host = b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n";
    let answer = server.exchange(with_host).await;
    expect_status(&answer, &[200]);
    assert!(answer.ends_with("\r\n\r\nok\n"), "{answer}");
    expect_status(&server.exchange(b"GET /healthz HTTP/1.0\r\n\r\n").await, &[400]);
    let whoami = b"GET /v1/whoami HTTP/1.0\r\nHost: localhost\r\n\r\n";
    expect_status(&server.exchange(whoami).await, &[401]);
    for other in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        b"GET / HTTP/3.0\r\nHost: localhost\r\n\r\n",
        b"GET /\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"\r\n\r\n\r\nGARBAGE\r\n\r\n",
    ] {
        let answer = server.exchange(other).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        assert!(!answer.contains("brigade"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_one_packet_are_answered_in_order() {
    let server = TestServer::start(|builder| builder).await;
    let requests = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n\
        GET /v1/whoami HTTP/1.1\r\nHost: localhost\r\n\r\n\
        GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n\
        GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = server.exchange(requests).await;
    let statuses: Vec<&str> =
        answer.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["200", "401", "200"], "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_has_one_length() {
    let server = TestServer::start(|builder| builder).await;
    let post = async |headers: &str, body: &str| {
        let headers = format!("Content-Type: application/json\r\n{headers}");
        server.ask(b"POST /v1/sessions HTTP/1.1", headers.as_bytes(), body.as_bytes()).await
    };
    let body = r#"{"name":"pot"}"#;
    for wrong in [
        "Content-Length: 14\r\nContent-Length: 5\r\n",
        "Content-Length: 14, 5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: +14\r\n",
        "Content-Length: 0x0e\r\n",
        "Content-Length: 99999999999999999999999\r\n",
        "Content-Length: 14\r\nTransfer-Encoding: gzip\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Content-Length : 14\r\n",
    ] {
        let answer = post(wrong, body).await;
        expect_status(&answer, &[400, 501]);
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{wrong}: {answer}");
    }
    // Bytes after the chunks are no request of their own.
    let smuggled = "0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = post("Content-Length: 53\r\nTransfer-Encoding: chunked\r\n", smuggled).await;
    expect_status(&answer, &[400]);
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    let listed = server.get("/v1/sessions").await.expect(200);
    assert_eq!(listed["items"], json!([]), "nothing was opened");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_chunks_are_refused() {
    let server = TestServer::start(|builder| builder).await;
    let post = async |body: &str| {
        let headers = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
        server.ask(b"POST /v1/sessions HTTP/1.1", headers, body.as_bytes()).await
    };
    let long_extension = format!("e;{}\r\n", "x".repeat(100_000));
    let many_trailers = format!("0\r\n{}\r\n", "X-T: 1\r\n".repeat(10_000));
    for wrong in [
        "x\r\n",
        "-1\r\n{}\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\n{}\r\n",
        "2\r\n{}garbage\r\n0\r\n\r\n",
        "2\n{}\n0\n\n",
        long_extension.as_str(),
        many_trailers.as_str(),
    ] {
        let answer = post(wrong).await;
        // The reset that follows unread bytes may overtake the answer.
        if !answer.is_empty() {
            expect_status(&answer, &[400, 413, 431]);
        }
    }
    expect_status(&post("e\r\n{\"name\":\"pot\"}\r\n0\r\nX-Trailer: 1\r\n\r\n").await, &[201]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_changes_nothing() {
    let server = TestServer::start(|builder| builder).await;
    let token = &server.operator;
    for body in ["", "{", "{\"name\":\"po"] {
        let request = format!(
            "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: 14\r\n\r\n{body}"
        );
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = read_to_close(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    let listed = server.get("/v1/sessions").await.expect(200);
    assert_eq!(listed["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn head_and_options_are_answered_everywhere() {
    let server = TestServer::start(|builder| builder).await;
    let document = server.get("/openapi.json").await.expect(200);
    for (path, item) in document["paths"].as_object().unwrap() {
        let path: Vec<_> = path.split('/').map(|part| part.replace(['{', '}'], "")).collect();
        let path = path.join("/");
        let options = server.send(Method::OPTIONS, &path, None).await;
        for header in options.headers.keys() {
            assert!(!header.as_str().starts_with("access-control"), "{path}: {header}");
        }
        let allowed = options.headers["allow"].to_str().unwrap().to_owned();
        options.expect_problem(405, "invalid");
        for method in item.as_object().unwrap().keys() {
            let method = method.to_uppercase();
            assert!(allowed.split(',').any(|name| name.trim() == method), "{path}: {allowed}");
        }
        let has_get = item.get("get").is_some();
        let head = server.ask(format!("HEAD {path} HTTP/1.1").as_bytes(), b"", b"").await;
        let (fields, body) = head.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "", "{path}: {fields}");
        let is_refused = fields.starts_with("HTTP/1.1 405 ");
        assert_eq!(is_refused, !has_get, "{path}: {fields}");
        for method in [Method::HEAD, Method::OPTIONS] {
            let refused = server.send_as("", method.clone(), &path, None).await;
            assert_eq!(refused.status, 401, "{method} {path}");
        }
    }
    for path in ["/", "/healthz", "/readyz", "/openapi.json", "/docs", "/assets/main.js"] {
        let head = server.send_as("", Method::HEAD, path, None).await;
        assert_eq!(head.expect(200), "", "{path}");
        server.send_as("", Method::OPTIONS, path, None).await.expect_problem(405, "invalid");
    }
}

/// Four bodies without their end have the share of a token.
#[tokio::test(flavor = "multi_thread")]
async fn the_bodies_of_one_token_leave_memory_for_others() {
    const BODY_BYTES: usize = 2 * 1024 * 1024;
    let server = TestServer::start(|builder| builder).await;
    let greedy = server.create_token("eve", TokenScope::Operator, None).await;
    let head = format!(
        "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {greedy}\r\n\
         Content-Type: application/json\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    );
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b' '; BODY_BYTES - 1]).await.unwrap();
        open.push(stream);
    }
    let large = json!({ "nothing": " ".repeat(100 * 1024) });
    let send = |secret| server.send_as(secret, Method::POST, "/v1/sessions", Some(large.clone()));
    // The server may still be reading the other bodies.
    let refused = async {
        while send(&greedy).await.status != 429 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, refused).await.unwrap();
    send(&server.operator).await.expect_problem(400, "invalid");
    let small =
        server.send_as(&greedy, Method::POST, "/v1/sessions", Some(json!({ "nothing": 1 })));
    small.await.expect_problem(400, "invalid");
    drop(open);
}
