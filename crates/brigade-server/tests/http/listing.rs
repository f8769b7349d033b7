//! Lists of sessions and tasks.

use brigade_model::refusal::Refusal;
use brigade_protocol::http::TokenScope;
use brigade_runtime::{Job, JobContext, RuntimeBuilder};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{SESSION, TestServer};

const WAIT: Job<u32, ()> = Job::new("wait");

fn with_jobs(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.job(WAIT, async |context: JobContext, _: u32| {
        context.receive().await?;
        Ok::<(), Refusal>(())
    })
}

async fn server_with_tasks(count: u32) -> TestServer {
    let server = TestServer::start(with_jobs).await;
    let session = server.runtime.session(SESSION).await.unwrap();
    for number in 0..count {
        session.spawn(WAIT.with(number)).await.unwrap();
    }
    server
}

fn numbers(page: &Value) -> Vec<u64> {
    page["items"].as_array().unwrap().iter().map(|task| task["number"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_have_each_task_once() {
    let server = server_with_tasks(7).await;
    let mut path = "/v1/tasks?limit=3&kind=job".to_owned();
    let mut seen = Vec::new();
    loop {
        let response = server.get(&path).await;
        let link = response.headers.get("link").map(|link| link.to_str().unwrap().to_owned());
        let page = response.expect(200);
        seen.extend(numbers(&page));
        let Some(link) = link else {
            assert!(page.get("next_page").is_none());
            break;
        };
        path = link.trim_start_matches('<').split('>').next().unwrap().to_owned();
        assert!(path.contains(page["next_page"].as_str().unwrap()), "{path}");
    }
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7]);
}

/// Returns the ids of all tasks of a list, page by page.
async fn list_all(server: &TestServer, query: &str) -> Vec<String> {
    let mut path = format!("/v1/tasks?{query}");
    let mut seen = Vec::new();
    loop {
        let response = server.get(&path).await;
        let link = response.headers.get("link").map(|link| link.to_str().unwrap().to_owned());
        let page = response.expect(200);
        let items = page["items"].as_array().unwrap();
        seen.extend(items.iter().map(|task| task["id"].as_str().unwrap().to_owned()));
        let Some(link) = link else { return seen };
        path = link.trim_start_matches('<').split('>').next().unwrap().to_owned();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_tasks_of_all_sessions_come_first() {
    let server = TestServer::start(with_jobs).await;
    let mut started = Vec::new();
    let mut ended = Vec::new();
    for number in 0..12 {
        let session = server.runtime.session(["a", "b", "c"][number % 3]).await.unwrap();
        let task = session.spawn(WAIT.with(0)).await.unwrap();
        let id = format!("{}.{}", session.id(), task.no());
        let shown = server.get(&format!("/v1/tasks/{id}")).await.expect(200);
        started.push((shown["spawned_at"].as_str().unwrap().to_owned(), id.clone()));
        if number % 4 == 0 {
            task.send(0).await.unwrap();
            task.wait().await.unwrap();
            ended.push(id);
        }
    }
    // Tasks of one millisecond are in the order of their ids.
    started.sort();
    let newest: Vec<String> = started.into_iter().rev().map(|(_, id)| id).collect();
    let alive: Vec<String> = newest.iter().filter(|id| !ended.contains(id)).cloned().collect();
    for limit in [1, 5, 100] {
        let seen = list_all(&server, &format!("order=newest&limit={limit}&ended=true")).await;
        assert_eq!(seen, newest, "limit={limit}");
        let seen = list_all(&server, &format!("order=newest&limit={limit}")).await;
        assert_eq!(seen, alive, "limit={limit}");
    }
    let mut oldest = list_all(&server, "order=oldest&ended=true&limit=2").await;
    assert_eq!(oldest, list_all(&server, "ended=true").await);
    oldest.sort();
    let mut expected = newest.clone();
    expected.sort();
    assert_eq!(oldest, expected);
    let all = server.get("/v1/tasks?order=newest&ended=true").await.expect(200);
    assert!(all.get("next_page").is_none(), "nothing follows");
    let page = server.get("/v1/tasks?order=newest&limit=2").await.expect(200);
    let next = page["next_page"].as_str().unwrap();
    let other = server.get(&format!("/v1/tasks?page={next}")).await;
    other.expect_problem(400, "invalid");
    server.get("/v1/tasks?order=best").await.expect_problem(400, "invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_has_an_id_for_all_sessions() {
    let server = server_with_tasks(1).await;
    let page = server.get("/v1/tasks").await.expect(200);
    let task = &page["items"][0];
    let id = task["id"].as_str().unwrap();
    assert_eq!(id, format!("{}.1", task["session"].as_str().unwrap()));
    assert_eq!(task["address"], "job:1");
    assert_eq!(task["state"], "waiting");
    assert_eq!(task["waits"], json!([{ "type": "message", "call": 0 }]));
    let shown = server.get(&format!("/v1/tasks/{id}")).await.expect(200);
    assert_eq!(shown["id"], id);
    let session = task["session"].as_str().unwrap();
    let missing = server.get(&format!("/v1/tasks/{session}.9")).await;
    missing.expect_problem(404, "not_found");
    for wrong in ["1", "x.1", &format!("{session}.0"), "00000000-0000-0000-0000-000000000000.1"] {
        server.get(&format!("/v1/tasks/{wrong}")).await.expect_problem(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_select_tasks() {
    let server = server_with_tasks(3).await;
    let session = server.runtime.session(SESSION).await.unwrap();
    session.spawn(WAIT.with(9).name("Soup")).await.unwrap();
    let list =
        async |query: &str| numbers(&server.get(&format!("/v1/tasks?{query}")).await.expect(200));
    assert_eq!(list("text=soup").await, [4]);
    assert_eq!(list("state=waiting,running&parent=none").await, [1, 2, 3, 4]);
    assert!(list("state=failed").await.is_empty());
    assert!(list("kind=agent").await.is_empty());
    assert_eq!(list("ended=true&limit=2").await, [1, 2]);
    let id = session.id();
    assert!(list(&format!("session={id}&parent={id}.1")).await.is_empty());
    for wrong in ["limit=0", "limit=1001", "limit=x", "page=x", "parent=1", "colour=red"] {
        let response = server.get(&format!("/v1/tasks?{wrong}")).await;
        assert!([400, 404].contains(&response.status.as_u16()), "{wrong}: {}", response.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_sees_its_session_alone() {
    let server = server_with_tasks(1).await;
    let other = server.runtime.session("bakery").await.unwrap();
    let client = server.create_token("bob", TokenScope::Client, Some(SESSION)).await;
    let get = async |path: &str| server.send_as(&client, Method::GET, path, None).await;
    let sessions = get("/v1/sessions").await.expect(200);
    assert_eq!(sessions["items"].as_array().unwrap().len(), 1);
    assert_eq!(sessions["items"][0]["name"], SESSION);
    let hidden = get(&format!("/v1/sessions/{}", other.id())).await;
    hidden.expect_problem(403, "forbidden");
    let missing = get("/v1/sessions/00000000-0000-0000-0000-000000000000").await;
    missing.expect_problem(404, "not_found");
    let opened = json!({ "name": "more" });
    let opened = server.send_as(&client, Method::POST, "/v1/sessions", Some(opened)).await;
    opened.expect_problem(403, "forbidden");
    assert_eq!(numbers(&get("/v1/tasks").await.expect(200)), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_opened_once_for_a_directory() {
    let server = TestServer::start(|builder| builder).await;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join(".git")).unwrap();
    std::fs::create_dir_all(root.join("src")).unwrap();
    let request = json!({ "workspace": root.join("src") });
    let first = server.post("/v1/sessions", request.clone()).await.expect(201);
    assert_eq!(first["name"].as_str(), root.to_str());
    let second = server.post("/v1/sessions", request).await.expect(200);
    assert_eq!(second["id"], first["id"]);
    let found = server.get(&format!("/v1/sessions?workspace={}", root.display())).await.expect(200);
    assert_eq!(found["items"][0]["id"], first["id"]);
    for wrong in [
        json!({ "workspace": "src" }),
        json!({ "workspace": root.join("missing") }),
        json!({ "name": " " }),
        json!({}),
        json!({ "name": "a", "workspace": "/" }),
    ] {
        server.post("/v1/sessions", wrong).await.expect_problem(400, "invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_has_the_times_of_its_state_and_its_run() {
    let server = server_with_tasks(1).await;
    let session = server.runtime.session(SESSION).await.unwrap();
    let path = format!("/v1/tasks/{}.1", session.id());
    let listed = server.get("/v1/tasks").await.expect(200)["items"][0].clone();
    let waiting = server.get(&path).await.expect(200);
    assert_eq!(waiting["state"], "waiting");
    assert_eq!(waiting["started_at"], waiting["spawned_at"]);
    assert!(waiting["state_since"].as_str() >= waiting["started_at"].as_str());
    assert_eq!(waiting["takes_messages"], true);
    for field in ["state_since", "started_at", "takes_messages"] {
        assert_eq!(listed[field], waiting[field], "{field}");
    }
    let task = session.task("1").await.unwrap();
    task.send(0).await.unwrap();
    task.wait().await.unwrap();
    let ended = server.get(&path).await.expect(200);
    assert_eq!(ended["state_since"], ended["ended_at"]);
    assert_eq!(ended["started_at"], waiting["started_at"]);
    assert_eq!(ended["takes_messages"], false, "a job has no second run");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_state_lists_all_tasks_that_ended_so() {
    let server = server_with_tasks(2).await;
    let id = server.runtime.session(SESSION).await.unwrap().id();
    // The operator's session: nobody takes the result of its task.
    let session = server.runtime.operator_session(id).await.unwrap();
    let task = session.spawn(WAIT.with(0)).await.unwrap();
    task.send(0).await.unwrap();
    task.wait().await.unwrap();
    let other = server.runtime.operator_session(id).await.unwrap();
    let stopped = other.spawn(WAIT.with(0)).await.unwrap();
    stopped.stop(None).await.unwrap();
    stopped.wait().await.unwrap();
    for (query, expect) in [
        ("", &[1, 2][..]),
        ("state=succeeded", &[3]),
        ("state=cancelled&order=newest", &[4]),
        ("state=waiting, cancelled", &[1, 2, 4]),
        ("state=failed", &[]),
        ("state=waiting", &[1, 2]),
        ("ended=true", &[1, 2, 3, 4]),
    ] {
        let page = server.get(&format!("/v1/tasks?{query}")).await.expect(200);
        assert_eq!(numbers(&page), expect, "{query}");
        let page = server.get(&format!("/v1/sessions/{id}/tasks?{query}")).await.expect(200);
        assert_eq!(numbers(&page), expect, "{query}");
    }
}
