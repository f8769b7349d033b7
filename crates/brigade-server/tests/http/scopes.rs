//! What the token of a scope may do on each route.

use brigade_protocol::http::TokenScope;
use reqwest::Method;
use serde_json::{Value, json};

use crate::task_server::TaskServer;

/// Returns the routes of the OpenAPI document, with ids in their paths.
async fn routes(server: &TaskServer, task: &str) -> Vec<(Method, String)> {
    let document = server.server.get("/openapi.json").await.expect(200);
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let path = path.replace("{session}", &server.session).replace("{task}", task);
        let parts = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
        let path = parts.collect::<Vec<_>>().join("/");
        for method in item.as_object().unwrap().keys() {
            routes.push((method.to_uppercase().parse().unwrap(), path.clone()));
        }
    }
    routes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_only_reads_changes_nothing() {
    let server = TaskServer::start().await;
    let task = server.start_job("ask", json!("Salt?")).await;
    server.wait(&task).await;
    let reader = server.server.create_token("eve", TokenScope::ReadOnly, None).await;
    let before = server.get(&task, "").await.expect(200);
    let mut changing = 0;
    for (method, path) in routes(&server, &task).await {
        let is_exempt = path.ends_with("/wait") || ["/v1/login", "/v1/logout"].contains(&&*path);
        if method.is_safe() || is_exempt {
            continue;
        }
        for body in [None, Some(json!({}))] {
            let response = server.server.send_as(&reader, method.clone(), &path, body).await;
            assert_eq!(response.status, 403, "{method} {path}: {}", response.body);
            response.expect_problem(403, "forbidden");
        }
        changing += 1;
    }
    assert!(changing >= 14, "{changing}");
    assert_eq!(server.get(&task, "").await.expect(200), before);
    let shown = server.server.send_as(&reader, Method::GET, "/v1/tasks", None).await.expect(200);
    assert_eq!(shown["items"].as_array().unwrap().len(), 1, "it sees what the operator sees");
}

/// Returns a request with a body that is right for each changing route of a task.
fn changes(task: &str) -> Vec<(Method, String, Value)> {
    let post =
        |action: &str, body: Value| (Method::POST, format!("/v1/tasks/{task}/{action}"), body);
    vec![
        post("stop", json!({})),
        post("messages", json!({ "body": 1 })),
        post("answer", json!({ "answer": "x" })),
        post("approvals/1", json!({ "verdict": "deny" })),
        post("resume", json!({})),
        (Method::PUT, format!("/v1/tasks/{task}/limits"), json!({ "tokens": 1 })),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_sees_but_does_not_control_the_tasks_of_others() {
    let server = TaskServer::start().await;
    let bob = server.client("bob").await;
    let eve = server.client("eve").await;
    let body = json!({ "kind": "job", "job": "ask", "arguments": "Salt?" });
    let task = server.start_as(&bob, body).await;
    server.wait(&task).await;
    let before = server.get(&task, "").await.expect(200);
    for (method, path, body) in changes(&task) {
        let response = server.server.send_as(&eve, method.clone(), &path, Some(body)).await;
        assert_eq!(response.status, 403, "{method} {path}: {}", response.body);
        response.expect_problem(403, "forbidden");
    }
    let after = server.server.send_as(&eve, Method::GET, &format!("/v1/tasks/{task}"), None).await;
    assert_eq!(after.expect(200)["last_activity_at"], before["last_activity_at"]);
    let answer = Some(json!({ "answer": "A pinch." }));
    let path = format!("/v1/tasks/{task}/answer");
    server.server.send_as(&bob, Method::POST, &path, answer).await.expect(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_does_not_reach_other_sessions_or_children() {
    let server = TaskServer::start().await;
    let other = server.server.post("/v1/sessions", json!({ "name": "other" })).await.expect(201);
    let other = other["id"].as_str().unwrap();
    let tasks = format!("/v1/sessions/{other}/tasks");
    let job = json!({ "kind": "job", "job": "echo" });
    let hidden = server.server.post(&tasks, job.clone()).await.expect(201)["id"].clone();
    let hidden = hidden.as_str().unwrap();
    let client = server.client("bob").await;
    let parent = server.start_as(&client, json!({ "kind": "job", "job": "cook" })).await;
    let child = format!("{}.2", server.session);
    let nothing = format!("{other}.99");
    let absent = "00000000-0000-0000-0000-000000000000";
    let gets = [
        "",
        "/subtree",
        "/runs/1",
        "/messages",
        "/usage",
        "/limits",
        "/output",
        "/transcript",
        "/output/search?pattern=a",
        "/transcript?format=text",
    ];
    let send = async |method: Method, path: &str, body: Option<Value>| {
        server.server.send_as(&client, method, path, body).await
    };
    while server.server.get(&format!("/v1/tasks/{child}")).await.status != 200 {
        tokio::task::yield_now().await;
    }
    for part in gets {
        for task in [hidden, &nothing, &child] {
            let response = send(Method::GET, &format!("/v1/tasks/{task}{part}"), None).await;
            assert_eq!(response.status, 403, "{task}{part}: {}", response.body);
        }
        for missing in [format!("{}.99", server.session), format!("{absent}.1")] {
            let response = send(Method::GET, &format!("/v1/tasks/{missing}{part}"), None).await;
            response.expect_problem(404, "not_found");
        }
        for wrong in ["1", "x", &server.session, &format!("{}.0", server.session)] {
            let response = send(Method::GET, &format!("/v1/tasks/{wrong}{part}"), None).await;
            response.expect_problem(404, "not_found");
        }
    }
    for task in [hidden, &child] {
        for (method, path, body) in changes(task) {
            let response = send(method.clone(), &path, Some(body)).await;
            // A client decides approvals of its own descendants, and there is none.
            let expected: &[u16] = match path.contains("approvals") && task == child {
                true => &[404, 409],
                false => &[403],
            };
            assert!(expected.contains(&response.status.as_u16()), "{path}: {}", response.body);
        }
    }
    for (method, path, body) in changes(&format!("{absent}.1")) {
        send(method, &path, Some(body)).await.expect_problem(404, "not_found");
    }
    let session = |id: &str| {
        vec![
            (Method::POST, format!("/v1/sessions/{id}/tasks"), Some(job.clone())),
            (Method::POST, format!("/v1/sessions/{id}/wait"), Some(json!({ "tasks": [hidden] }))),
            (Method::POST, format!("/v1/sessions/{id}/close"), None),
            (
                Method::POST,
                format!("/v1/sessions/{id}/inbox/read"),
                Some(json!({ "numbers": [1] })),
            ),
            (Method::GET, format!("/v1/sessions/{id}/inbox"), None),
            (Method::GET, format!("/v1/sessions/{id}/messages/1"), None),
            (Method::DELETE, format!("/v1/sessions/{id}/grants/1"), None),
        ]
    };
    for (method, path, body) in session(other) {
        send(method, &path, body).await.expect_problem(403, "forbidden");
    }
    for id in [absent, "1", "x%2fy"] {
        for (method, path, body) in session(id) {
            send(method, &path, body).await.expect_problem(404, "not_found");
        }
    }
    let wait = json!({ "tasks": [child] });
    let wait =
        send(Method::POST, &format!("/v1/sessions/{}/wait", server.session), Some(wait)).await;
    wait.expect_problem(403, "forbidden");
    let stop = format!("/v1/tasks/{parent}/stop");
    send(Method::POST, &stop, None).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_belongs_to_its_client() {
    let server = TaskServer::start().await;
    let path = format!("/v1/sessions/{}/tasks", server.session);
    let bob = server.client("bob").await;
    let again = server.client("bob").await;
    let eve = server.client("eve").await;
    let start = async |secret: &str, body: Value| {
        let headers = [("idempotency-key", "build 17")];
        server.send_with(secret, &path, &headers, Some(body)).await
    };
    let bodies = [
        json!({ "kind": "job", "job": "echo", "arguments": 1 }),
        json!({ "kind": "process", "command": ["true"], "cwd": server.cwd(), "sandbox": {} }),
    ];
    let [job, process] = bodies;
    let first = start(&bob, job.clone()).await.expect(201);
    let replayed = start(&again, job.clone()).await;
    assert_eq!(replayed.headers["idempotent-replayed"], "true");
    assert_eq!(replayed.expect(200)["id"], first["id"], "the name is the client");
    start(&bob, process.clone()).await.expect_problem(409, "conflict");
    let other = start(&eve, process.clone()).await.expect(201);
    assert_ne!(other["id"], first["id"], "another client learns nothing of the task");
    assert_eq!(start(&eve, process).await.expect(200)["id"], other["id"]);
    let operators = start(&server.server.operator, job).await.expect(201);
    assert_ne!(operators["id"], first["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_on_disk_stay_unknown() {
    let server = TaskServer::start().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let dir = elsewhere.path().canonicalize().unwrap();
    let looped = dir.join("loop");
    std::os::unix::fs::symlink(&looped, &looped).unwrap();
    std::fs::write(dir.join("file"), "").unwrap();
    let unreadable = ["missing", "loop", "file", "file/x"].map(|name| dir.join(name));
    let unreadable = unreadable.map(|path| path.to_str().unwrap().to_owned());
    let client = server.client("bob").await;
    let reader = server.server.create_token("eve", TokenScope::ReadOnly, None).await;
    let operator = server.server.operator.clone();
    for route in ["definitions?cwd=", "sessions?workspace="] {
        let get = async |secret: &str, path: &str| {
            let path = format!("/v1/{route}{path}");
            server.server.send_as(secret, Method::GET, &path, None).await
        };
        for secret in [&reader, &operator] {
            for path in &unreadable {
                let detail = get(secret, path).await.expect_problem(400, "invalid");
                let expected = format!("{path:?} is not a directory that the server can read");
                assert_eq!(detail, expected);
            }
            get(secret, dir.to_str().unwrap()).await.expect(200);
        }
        let existing = dir.to_str().unwrap().to_owned();
        for path in unreadable.iter().chain([&existing]) {
            get(&client, path).await.expect_problem(403, "forbidden");
        }
        get(&client, &server.cwd()).await.expect(200);
        get(&client, &format!("{}/missing", server.cwd())).await.expect_problem(400, "invalid");
        get(&client, "src").await.expect_problem(400, "invalid");
    }
}
