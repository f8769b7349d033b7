//! Tasks that are started over HTTP.

use brigade_protocol::http::TokenScope;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{TEST_TIMEOUT, TestServer};
use crate::task_server::TaskServer;

fn tasks_path(server: &TaskServer) -> String {
    format!("/v1/sessions/{}/tasks", server.session)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_started_and_shown() {
    let server = TaskServer::start().await;
    let body = json!({
        "kind": "process", "shell": "echo $GREETING; exit 3", "cwd": server.cwd(), "name": "Hello",
        "env": { "GREETING": "hi" }, "deadline_ms": 600_000, "limits": { "total": 4 },
        "resources": { "open_files": 64 },
    });
    let response = server.server.post(&tasks_path(&server), body).await;
    let location = response.headers["location"].to_str().unwrap().to_owned();
    let task = response.expect(201);
    assert_eq!(location, format!("/v1/tasks/{}", task["id"].as_str().unwrap()));
    assert_eq!(task["kind"], "process");
    let secret = server.server.operator.clone();
    let prefer = [("prefer", "wait=30")];
    let shown = server.send_with(&secret, &location, &prefer, None).await.expect(200);
    assert_eq!(shown["state"], "failed");
    assert_eq!(shown["exit_code"], 3);
    assert_eq!(shown["outcome"]["type"], "failed");
    assert_eq!(shown["outcome"]["code"], "exit_code");
    assert_eq!(shown["cwd"], server.cwd());
    assert_eq!(shown["limits"]["total"], 4);
    assert_eq!(shown["remaining"]["total"], 4);
    assert_eq!(shown["sandbox"]["resources"]["open_files"], 64);
    assert_eq!(shown["collected"], false, "a GET collects nothing");
    assert!(shown["partial"]["tail"].as_str().unwrap().contains("hi"), "{shown}");
    assert!(shown["cursor"].is_string());
    assert!(shown.get("result").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_has_a_worktree() {
    let server = TaskServer::start().await;
    let cwd = server.cwd();
    let script = "git init -q && git -c user.name=C -c user.email=c@example.com commit -q \
                  --allow-empty -m first";
    let made = std::process::Command::new("sh").args(["-c", script]).current_dir(&cwd).status();
    assert!(made.unwrap().success());
    let body = json!({
        "kind": "process", "shell": "echo soup > menu", "cwd": cwd, "worktree": true,
    });
    let task = server.server.post(&tasks_path(&server), body).await.expect(201);
    let path = format!("/v1/tasks/{}", task["id"].as_str().unwrap());
    let secret = server.server.operator.clone();
    let prefer = [("prefer", "wait=30")];
    let mut shown = server.send_with(&secret, &path, &prefer, None).await.expect(200);
    assert_eq!(shown["state"], "succeeded", "{shown}");
    let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
    while shown["worktree"]["kept"].is_null() {
        assert!(tokio::time::Instant::now() < deadline, "{shown}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        shown = server.server.get(&path).await.expect(200);
    }
    assert_eq!(shown["worktree"]["kept"], true);
    assert_eq!(shown["cwd"], cwd);
    let menu =
        std::fs::read_to_string(format!("{}/menu", shown["worktree"]["path"].as_str().unwrap()));
    assert_eq!(menu.unwrap(), "soup\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_starts_one_task() {
    let server = TaskServer::start().await;
    let secret = server.server.operator.clone();
    let path = tasks_path(&server);
    let start = async |key: &str, body: Value| {
        let headers = [("idempotency-key", key)];
        server.send_with(&secret, &path, &headers, Some(body)).await
    };
    let echo = |arguments: u32| json!({ "kind": "job", "job": "echo", "arguments": arguments });
    let first = start("k", echo(1)).await;
    assert!(!first.headers.contains_key("idempotent-replayed"));
    let first = first.expect(201);
    let second = start("k", echo(1)).await;
    assert_eq!(second.headers["idempotent-replayed"], "true");
    assert_eq!(second.headers["location"], format!("/v1/tasks/{}", first["id"].as_str().unwrap()));
    assert_eq!(second.expect(200)["id"], first["id"]);
    start("k", echo(2)).await.expect_problem(409, "conflict");
    let process = json!({ "kind": "process", "command": ["true"], "cwd": "/" });
    start("k", process.clone()).await.expect_problem(409, "conflict");
    let process_id = start("p", process.clone()).await.expect(201)["id"].clone();
    assert_eq!(start("p", process).await.expect(200)["id"], process_id);
    start("", echo(1)).await.expect_problem(400, "invalid");
    start(&"k".repeat(300), echo(1)).await.expect_problem(400, "invalid");
    let twice = [("idempotency-key", "a"), ("idempotency-key", "b")];
    let twice = server.send_with(&secret, &path, &twice, Some(echo(1))).await;
    twice.expect_problem(400, "invalid");
    let latin = reqwest::header::HeaderValue::from_bytes(b"\xff").unwrap();
    let request = server.server.client().post(server.server.url(&path)).bearer_auth(&secret);
    let request = request.header("content-type", "application/json");
    let request = request.header("idempotency-key", latin).body(echo(1).to_string());
    assert_eq!(request.send().await.unwrap().status(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_does_not_learn_of_keys_of_others() {
    let server = TaskServer::start().await;
    let path = tasks_path(&server);
    let start = async |secret: &str, key: &str, cwd: &str| {
        let body = json!({ "kind": "process", "command": ["true"], "cwd": cwd, "sandbox": {} });
        server.send_with(secret, &path, &[("idempotency-key", key)], Some(body)).await
    };
    let operator = server.server.operator.clone();
    start(&operator, "deploy", &server.cwd()).await.expect(201);
    let bob = server.client("bob").await;
    start(&bob, "bake", &server.cwd()).await.expect(201);
    let file = format!("{}/file", server.cwd());
    std::fs::write(&file, "").unwrap();
    let eve = server.client("eve").await;
    for key in ["deploy", "bake", "token:bob/bake", "unused"] {
        start(&eve, key, &file).await.expect_problem(400, "invalid");
    }
    start(&bob, "bake", &server.cwd()).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_started_with_its_permissions() {
    let server = TaskServer::start().await;
    let body = json!({
        "kind": "agent", "prompt": "Bake.", "name": "Baker", "cwd": server.cwd(),
        "permissions": { "deny": ["bake"] }, "unattended": true,
        "limits": { "tokens": 100_000, "stall": { "after_ms": 60_000 }, "spawn_rate": "10/min" },
        "sandbox": { "deny_network": true },
    });
    let id = server.start_as(&server.server.operator, body).await;
    let waited = server.wait(&id).await;
    assert_eq!(waited["ended"][0]["result"], "Not baked.");
    let shown = server.get(&id, "").await.expect(200);
    assert_eq!(shown["result"], "Not baked.");
    assert_eq!(shown["outcome"], json!({ "type": "succeeded", "text": shown["outcome"]["text"] }));
    assert_eq!(shown["unattended"], true);
    assert_eq!(shown["limits"]["spawn_rate"], "10/min");
    assert_eq!(shown["sandbox"]["layers"][0]["deny_network"], true);
    let permissions = shown["permissions"].to_string();
    assert!(permissions.contains(r#""deny":["bake"]"#), "{permissions}");
    assert_eq!(shown["cwd"], server.cwd());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_starts_only_what_is_sandboxed() {
    let server = TaskServer::start().await;
    let client = server.client("bob").await;
    let path = tasks_path(&server);
    let start =
        async |body: Value| server.server.send_as(&client, Method::POST, &path, Some(body)).await;
    let process = json!({ "kind": "process", "command": ["true"], "cwd": server.cwd() });
    let agent = json!({ "kind": "agent", "prompt": "Bake.", "cwd": server.cwd() });
    for body in [&process, &agent] {
        let detail = start(body.clone()).await.expect_problem(403, "forbidden");
        assert!(detail.contains("sandbox"), "{detail}");
    }
    let mut sandboxed = process.clone();
    sandboxed["sandbox"] = json!({});
    let task = start(sandboxed.clone()).await.expect(201);
    assert_eq!(task["client"], "token:bob");
    let shown = server.get(task["id"].as_str().unwrap(), "").await.expect(200);
    assert_eq!(shown["sandbox"]["layers"][0]["write"], json!([server.cwd()]));
    sandboxed["env"] = json!({ "STOLEN": { "from": "PATH" } });
    start(sandboxed).await.expect_problem(403, "forbidden");
    let job = json!({ "kind": "job", "job": "echo", "name": "Free" });
    assert_eq!(start(job).await.expect(201)["name"], "Free");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_stays_in_the_workspace_of_its_session() {
    let server = TaskServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join(".git")).unwrap();
    std::os::unix::fs::symlink("/", root.join("link")).unwrap();
    let root = root.to_str().unwrap();
    let session = server.server.post("/v1/sessions", json!({ "workspace": root })).await;
    let path = format!("/v1/sessions/{}/tasks", session.expect(201)["id"].as_str().unwrap());
    let client = server.server.create_token("bob", TokenScope::Client, Some(root)).await;
    let start = async |cwd: &str, sandbox: Value| {
        let body =
            json!({ "kind": "process", "command": ["true"], "cwd": cwd, "sandbox": sandbox });
        server.server.send_as(&client, Method::POST, &path, Some(body)).await
    };
    start(root, json!({ "write": [root] })).await.expect(201);
    for outside in ["/", &format!("{root}/.."), &format!("{root}/link")] {
        start(outside, json!({})).await.expect_problem(403, "forbidden");
        start(root, json!({ "write": [outside] })).await.expect_problem(403, "forbidden");
        start(root, json!({ "read": [outside] })).await.expect_problem(403, "forbidden");
        let definitions = format!("/v1/definitions?cwd={outside}");
        let definitions = server.server.send_as(&client, Method::GET, &definitions, None).await;
        definitions.expect_problem(403, "forbidden");
    }
    let missing = format!("{root}/missing");
    let detail = start(&missing, json!({})).await.expect_problem(400, "invalid");
    assert!(detail.contains(&missing), "{detail}");
    // The answer does not show whether there is such a file.
    for outside in ["/missing", "/etc/passwd", &format!("{root}/link/missing")] {
        start(outside, json!({})).await.expect_problem(403, "forbidden");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_working_directory_exists() {
    let server = TaskServer::start().await;
    let path = tasks_path(&server);
    let work = server.dir.path().canonicalize().unwrap().join("work");
    std::fs::create_dir(&work).unwrap();
    let cwd = work.to_str().unwrap();
    let secret = server.server.operator.clone();
    let body = json!({ "kind": "process", "command": ["true"], "cwd": cwd });
    let keyed = [("idempotency-key", "k")];
    let start = async |headers: &[(&str, &str)]| {
        server.send_with(&secret, &path, headers, Some(body.clone())).await
    };
    let first = start(&keyed).await.expect(201);
    server.wait(first["id"].as_str().unwrap()).await;
    std::fs::remove_dir(&work).unwrap();
    assert_eq!(start(&keyed).await.expect(200)["id"], first["id"], "the key has its task");
    for headers in [vec![], vec![("idempotency-key", "other")]] {
        let detail = start(&headers).await.expect_problem(400, "invalid");
        assert!(detail.contains(cwd), "{detail}");
    }
    std::fs::write(&work, "no directory").unwrap();
    let detail = start(&[]).await.expect_problem(400, "invalid");
    assert!(detail.contains(cwd), "{detail}");
    let agent = json!({ "kind": "agent", "prompt": "Bake.", "cwd": cwd });
    server.server.post(&path, agent).await.expect_problem(400, "invalid");
    let page = server.server.get("/v1/tasks?ended=true").await.expect(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 1, "nothing else was started");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tasks_are_refused() {
    let server = TaskServer::start().await;
    let path = tasks_path(&server);
    let start = async |body: Value| server.server.post(&path, body).await;
    let cwd = server.cwd();
    for wrong in [
        json!({}),
        json!([]),
        json!("process"),
        json!({ "kind": "cake" }),
        json!({ "kind": 7 }),
        json!({ "kind": "process", "command": ["true"] }),
        json!({ "kind": "process", "command": ["true"], "cwd": "src" }),
        json!({ "kind": "process", "command": ["true"], "cwd": "" }),
        json!({ "kind": "process", "cwd": cwd }),
        json!({ "kind": "process", "command": [], "cwd": cwd }),
        json!({ "kind": "process", "command": "true", "cwd": cwd }),
        json!({ "kind": "process", "command": ["a\0b"], "cwd": cwd }),
        json!({ "kind": "process", "shell": " ", "cwd": cwd }),
        json!({ "kind": "process", "shell": "a", "command": ["b"], "cwd": cwd }),
        json!({ "kind": "process", "shell": "a", "cwd": cwd, "colour": "red" }),
        json!({ "kind": "process", "shell": "a", "cwd": cwd, "env": { "A": 1 } }),
        json!({ "kind": "process", "shell": "a", "cwd": cwd, "env": { "A": { "form": "B" } } }),
        json!({ "kind": "process", "shell": "a", "cwd": cwd, "env": { "BRIGADE_X": "1" } }),
        json!({ "kind": "process", "shell": "a", "cwd": cwd, "grace_ms": -1 }),
        json!({ "kind": "process", "shell": "a", "cwd": cwd, "terminal": { "rows": 0, "columns": 1 } }),
        json!({ "kind": "process", "shell": "a", "cwd": cwd, "sandbox": { "write": ["missing"] } }),
        json!({ "kind": "process", "shell": "a", "cwd": cwd, "limits": { "money": 1 } }),
        json!({ "kind": "process", "shell": "a", "cwd": cwd, "limits": { "money": "a lot" } }),
        json!({ "kind": "process", "shell": "a", "cwd": cwd, "limits": { "spawn_rate": "fast" } }),
        json!({ "kind": "agent", "prompt": "a" }),
        json!({ "kind": "agent", "prompt": " ", "cwd": cwd }),
        json!({ "kind": "agent", "prompt": "a", "cwd": "." }),
        json!({ "kind": "agent", "prompt": "a", "cwd": cwd, "permissions": { "allow": [""] } }),
        json!({ "kind": "agent", "prompt": "a", "cwd": cwd, "permissions": { "allow": null, "x": 1 } }),
        json!({ "kind": "job" }),
        json!({ "kind": "job", "job": "echo", "name": "" }),
    ] {
        let response = start(wrong.clone()).await;
        assert_eq!(response.status, 400, "{wrong}: {}", response.body);
        response.expect_problem(400, "invalid");
    }
    start(json!({ "kind": "job", "job": "none" })).await.expect_problem(404, "not_found");
    let twice = br#"{"kind": "job", "job": "echo", "job": "burn"}"#;
    server.post_bytes(&path, twice).await.expect_problem(400, "invalid");
    let invalid = b"{\"kind\": \"job\", \"job\": \"\xff\"}";
    server.post_bytes(&path, invalid).await.expect_problem(400, "invalid");
    let deep = format!("{}1{}", "[".repeat(50_000), "]".repeat(50_000));
    let deep = format!("{{\"kind\": \"job\", \"job\": \"echo\", \"arguments\": {deep}}}");
    server.post_bytes(&path, deep).await.expect_problem(400, "invalid");
    let long = json!({ "kind": "job", "job": "echo", "arguments": "x".repeat(3 * 512 * 1024) });
    start(long).await.expect_problem(400, "invalid");
    let huge = json!({ "kind": "job", "job": "echo", "arguments": "x".repeat(5 * 1024 * 1024) });
    start(huge).await.expect_problem(413, "limit");
    let listed = server.server.get(&path).await.expect(200);
    assert_eq!(listed["items"], json!([]), "nothing was started");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_agents_or_space_refuses_tasks() {
    let server = TestServer::start(|builder| builder).await;
    let session = server.post("/v1/sessions", json!({ "name": "empty" })).await.expect(201);
    let id = session["id"].as_str().unwrap();
    let path = format!("/v1/sessions/{id}/tasks");
    let agent = json!({ "kind": "agent", "prompt": "Bake.", "cwd": "/" });
    let response = server.post(&path, agent).await;
    assert_eq!(response.headers["retry-after"], "1");
    response.expect_problem(503, "unavailable");
    let definitions = server.get("/v1/definitions?cwd=/").await;
    definitions.expect_problem(503, "unavailable");
    let missing = "/v1/sessions/00000000-0000-0000-0000-000000000000/tasks";
    let job = json!({ "kind": "job", "job": "echo" });
    server.post(missing, job).await.expect_problem(404, "not_found");
    let server = TaskServer::start().await;
    let limits = format!("/v1/sessions/{}/limits", server.session);
    let set = server.server.send(Method::PUT, &limits, Some(json!({ "width": 1 }))).await;
    assert_eq!(set.expect(200)["limits"]["width"], 1);
    server.start_job("echo", json!(1)).await;
    let job = json!({ "kind": "job", "job": "echo" });
    server.server.post(&tasks_path(&server), job).await.expect_problem(429, "limit");
}
