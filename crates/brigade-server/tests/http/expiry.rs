//! Tokens and login codes that expire, with a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::ids::Time;
use brigade_testkit::ManualClock;
use reqwest::Method;
use serde_json::json;

use crate::sse_client::SseClient;
use crate::support::TestServer;

const MINUTE: Duration = Duration::from_secs(60);

async fn start(clock: &ManualClock) -> TestServer {
    TestServer::start(|builder| builder.clock(Arc::new(clock.clone()))).await
}

/// Creates a token that is valid for a minute, and returns its secret.
async fn create_short_token(server: &TestServer) -> String {
    let body = json!({ "name": "short", "scope": "operator", "expires_in_ms": 60_000 });
    let made = server.post("/v1/tokens", body).await.expect(201);
    made["secret"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_is_unknown_everywhere() {
    let clock = ManualClock::at(Time(1_000_000));
    let server = start(&clock).await;
    let secret = create_short_token(&server).await;
    let send = |path: &'static str| server.send_as(&secret, Method::GET, path, None);
    send("/v1/whoami").await.expect(200);
    clock.advance(MINUTE - Duration::from_millis(1));
    send("/v1/whoami").await.expect(200);
    clock.advance(Duration::from_millis(1));
    for path in ["/v1/whoami", "/v1/tasks", "/v1/events", "/metrics", "/mcp", "/v1/nothing"] {
        send(path).await.expect_problem(401, "unauthenticated");
    }
    let listed = server.get("/v1/tokens").await.expect(200);
    assert!(!listed.to_string().contains("short"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_code_does_not_log_in() {
    let clock = ManualClock::at(Time(1_000_000));
    let server = start(&clock).await;
    let late = server.create_login_code().await;
    clock.advance(MINUTE);
    let login =
        |code: String| server.send_as("", Method::POST, "/v1/login", Some(json!({ "code": code })));
    login(late).await.expect_problem(401, "unauthenticated");
    login(server.create_login_code().await).await.expect(200);
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let clock = ManualClock::at(Time(1_000_000));
    let server = start(&clock).await;
    let secret = create_short_token(&server).await;
    let mut stream = SseClient::open_as(&server, &secret, "/v1/events", None).await.unwrap();
    stream.expect("cursor").await;
    clock.advance(MINUTE);
    tokio::time::pause();
    assert_eq!(stream.expect("error").await.data["code"], "unauthenticated");
    assert!(stream.next().await.is_none());
    tokio::time::resume();
    let again = SseClient::open_as(&server, &secret, "/v1/events", Some(&stream.last_id)).await;
    again.err().unwrap().expect_problem(401, "unauthenticated");
}
