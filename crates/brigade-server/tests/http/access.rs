//! Tokens, logins and scopes.

use brigade_protocol::http::TokenScope;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{SESSION, TestServer};

/// Returns all routes of the OpenAPI document, with values for the parameters of their paths.
async fn documented_routes(server: &TestServer) -> Vec<(Method, String)> {
    let document = server.get("/openapi.json").await.expect(200);
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let mut parts: Vec<&str> = path.split('/').collect();
        for part in &mut parts {
            if part.starts_with('{') {
                *part = "1";
            }
        }
        for method in item.as_object().unwrap().keys() {
            let method = method.to_uppercase().parse().unwrap();
            routes.push((method, parts.join("/")));
        }
    }
    routes
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_needs_a_valid_token() {
    let server = TestServer::start(|builder| builder).await;
    let routes = documented_routes(&server).await;
    assert!(routes.len() > 5, "{routes:?}");
    let unknown = format!("brg_{}", "A".repeat(43));
    for (method, path) in routes.iter().filter(|(_, path)| path != "/v1/login") {
        for secret in ["", "x", &unknown] {
            let response = server.send_as(secret, method.clone(), path, None).await;
            assert_eq!(response.headers["www-authenticate"], "Bearer", "{method} {path}");
            response.expect_problem(401, "unauthenticated");
        }
    }
    for path in ["/v1/nothing", "/metrics", "/v2", "/assets", "//v1/tasks"] {
        let response = server.send_as("", Method::GET, path, None).await;
        response.expect_problem(401, "unauthenticated");
    }
    for path in ["/healthz", "/readyz"] {
        let response = server.send_as("", Method::GET, path, None).await;
        assert_eq!(response.expect(200), "ok\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_code_is_valid_once() {
    let server = TestServer::start(|builder| builder).await;
    let code = server.create_login_code().await;
    let login =
        |code: String| server.send_as("", Method::POST, "/v1/login", Some(json!({ "code": code })));
    let (first, second) = tokio::join!(login(code.clone()), login(code.clone()));
    let (granted, refused) = match first.status.as_u16() {
        200 => (first, second),
        _ => (second, first),
    };
    refused.expect_problem(401, "unauthenticated");
    let granted = granted.expect(200);
    assert_eq!(granted["token"]["scope"], "operator");
    assert!(granted["token"]["expires_at"].is_string());
    for wrong in ["", "x", &code] {
        login(wrong.to_owned()).await.expect_problem(401, "unauthenticated");
    }
    let secret = granted["secret"].as_str().unwrap();
    let me = server.send_as(secret, Method::GET, "/v1/whoami", None).await.expect(200);
    assert_eq!(me["token"], granted["token"]);
    server.send_as(secret, Method::POST, "/v1/logout", None).await.expect(204);
    let after = server.send_as(secret, Method::GET, "/v1/whoami", None).await;
    after.expect_problem(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_operator_manages_tokens() {
    let server = TestServer::start(|builder| builder).await;
    server.runtime.session(SESSION).await.unwrap();
    let reader = server.create_token("eve", TokenScope::ReadOnly, None).await;
    let client = server.create_token("bob", TokenScope::Client, Some(SESSION)).await;
    let request = json!({ "name": "more", "scope": "operator" });
    for secret in [&reader, &client] {
        let listed = server.send_as(secret, Method::GET, "/v1/tokens", None).await;
        listed.expect_problem(403, "forbidden");
        let made = server.send_as(secret, Method::POST, "/v1/tokens", Some(request.clone())).await;
        made.expect_problem(403, "forbidden");
    }
    let made = server.post("/v1/tokens", request).await.expect(201);
    let listed = server.get("/v1/tokens").await.expect(200);
    let names = |listed: &Value| -> Vec<String> {
        let items = listed["items"].as_array().unwrap().iter();
        let mut names: Vec<_> = items.map(|one| one["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&listed), ["bob", "boss", "eve", "more"]);
    let secret = made["secret"].as_str().unwrap();
    assert!(!listed.to_string().contains(&secret[4..]), "no list has a secret");
    let path = format!("/v1/tokens/{}", made["token"]["id"].as_str().unwrap());
    server.send(Method::DELETE, &path, None).await.expect(204);
    server.send(Method::DELETE, &path, None).await.expect_problem(404, "not_found");
    let after = server.send_as(secret, Method::GET, "/v1/whoami", None).await;
    after.expect_problem(401, "unauthenticated");
    for wrong in ["x", "0000000000000000", "%2e%2e", "0123456789abcdeg"] {
        let path = format!("/v1/tokens/{wrong}");
        server.send(Method::DELETE, &path, None).await.expect_problem(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_request_is_refused() {
    let server = TestServer::start(|builder| builder).await;
    for wrong in [
        json!({ "name": "", "scope": "operator" }),
        json!({ "name": "a\nb", "scope": "operator" }),
        json!({ "name": "x".repeat(65), "scope": "operator" }),
        json!({ "name": "x", "scope": "client" }),
        json!({ "name": "x", "scope": "king" }),
        json!({ "name": "x", "scope": "operator", "more": 1 }),
        json!([]),
    ] {
        server.post("/v1/tokens", wrong).await.expect_problem(400, "invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_survive_a_restart_and_the_address_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store.db");
    let open = || brigade_sqlite::SqliteStore::open(&store).unwrap();
    let server = TestServer::start(|builder| builder.store(open())).await;
    let address = server.address;
    let secret = server.operator.clone();
    let cursor = server.get("/v1/whoami").await.expect(200)["cursor"].clone();
    let server = server.restart(|builder| builder.store(open())).await;
    assert_eq!(server.address, address);
    let me = server.send_as(&secret, Method::GET, "/v1/whoami", None).await.expect(200);
    assert_eq!(me["cursor"], cursor, "the store is the same");
}
