//! Each documented route once, with a request that succeeds.

use std::collections::BTreeSet;
use std::sync::Mutex;

use brigade_runtime::NodeOptions;
use brigade_store::{ExpectedVersion, NewRecord, RecordKey, RecordKind, RecordQuery};
use reqwest::Method;
use serde_json::{Value, json};

use crate::nodes::new_fleet_store;
use crate::task_server::TaskServer;

/// A server, and the routes that were called on it.
struct RouteLog {
    server: TaskServer,
    called: Mutex<BTreeSet<String>>,
}

impl RouteLog {
    /// Calls a route, such as `GET /v1/tasks/{task}`, with values for the parameters of its path.
    async fn call(&self, route: &str, values: &[&str], body: Option<Value>) -> Value {
        let (method, path) = self.enter(route, values);
        let response = self.server.server.send(method, &path, body).await;
        assert!(response.status.is_success(), "{route}: {} {}", response.status, response.body);
        response.body
    }

    /// Calls a route with a query.
    async fn query(&self, route: &str, values: &[&str], query: &str) -> Value {
        let (method, path) = self.enter(route, values);
        let response = self.server.server.send(method, &format!("{path}?{query}"), None).await;
        response.expect(200)
    }

    /// Notes a route as called, and returns its method and its path.
    fn enter(&self, route: &str, values: &[&str]) -> (Method, String) {
        self.called.lock().unwrap().insert(route.to_owned());
        let (method, path) = route.split_once(' ').unwrap();
        let mut values = values.iter();
        let parts = path.split('/').map(|part| match part.starts_with('{') {
            true => *values.next().unwrap(),
            false => part,
        });
        let path = parts.collect::<Vec<_>>().join("/");
        (method.parse().unwrap(), path)
    }

    async fn wait(&self, task: &str) -> Value {
        let body = json!({ "tasks": [task], "until": "ended_or_input" });
        let session = &self.server.session;
        self.call("POST /v1/sessions/{session}/wait", &[session], Some(body)).await
    }

    async fn call_task_routes(&self, task: &str) {
        for route in [
            "GET /v1/tasks/{task}",
            "GET /v1/tasks/{task}/subtree",
            "GET /v1/tasks/{task}/events",
            "GET /v1/tasks/{task}/messages",
            "GET /v1/tasks/{task}/usage",
            "GET /v1/tasks/{task}/limits",
            "GET /v1/tasks/{task}/output",
            "GET /v1/tasks/{task}/output/stream",
        ] {
            self.call(route, &[task], None).await;
        }
        self.query("GET /v1/tasks/{task}/output/search", &[task], "pattern=soup").await;
        self.call("GET /v1/tasks/{task}/runs/{run}", &[task, "1"], None).await;
    }

    async fn call_agent_routes(&self, agent: &str) {
        let waited = self.wait(agent).await;
        let approval = &waited["pending_approvals"][0]["approval"];
        let call = approval["call"].to_string();
        self.call("GET /v1/pending", &[], None).await;
        let verdict =
            json!({ "verdict": "allow_always", "digest": approval["digest"], "rule": "bake" });
        let approvals = "POST /v1/tasks/{task}/approvals/{call}";
        self.call(approvals, &[agent, &call], Some(verdict)).await;
        self.wait(agent).await;
        self.call("GET /v1/tasks/{task}/transcript", &[agent], None).await;
        self.call("GET /v1/tasks/{task}/text/stream", &[agent], None).await;
        self.call("POST /v1/tasks/{task}/resume", &[agent], Some(json!({}))).await;
        let grants = self.call("GET /v1/grants", &[], None).await;
        let number = grants["items"][0]["number"].to_string();
        let revoke = "DELETE /v1/sessions/{session}/grants/{number}";
        self.call(revoke, &[&self.server.session, &number], None).await;
    }

    async fn call_message_routes(&self, asking: &str) {
        let session = &*self.server.session;
        let message = Some(json!({ "body": "Soup?" }));
        let sent = self.call("POST /v1/tasks/{task}/messages", &[asking], message).await;
        let number = sent["numbers"][0].to_string();
        let show = "GET /v1/sessions/{session}/messages/{number}";
        self.call(show, &[session, &number], None).await;
        self.call("GET /v1/sessions/{session}/inbox", &[session], None).await;
        let numbers = Some(json!({ "numbers": [1] }));
        self.call("POST /v1/sessions/{session}/inbox/read", &[session], numbers).await;
        let answer = Some(json!({ "answer": "Yes." }));
        self.call("POST /v1/tasks/{task}/answer", &[asking], answer).await;
        self.wait(asking).await;
    }

    async fn call_session_routes(&self) {
        let opened = self.call("POST /v1/sessions", &[], Some(json!({ "name": "pot" }))).await;
        let session = opened["id"].as_str().unwrap();
        for route in [
            "GET /v1/sessions/{session}",
            "GET /v1/sessions/{session}/tasks",
            "GET /v1/sessions/{session}/events",
        ] {
            self.call(route, &[session], None).await;
        }
        let limits = Some(json!({ "width": 5 }));
        self.call("PUT /v1/sessions/{session}/limits", &[session], limits).await;
        let node = Some(json!({ "node": "one" }));
        self.call("POST /v1/sessions/{session}/move", &[session], node).await;
        let labels = Some(json!({ "labels": [] }));
        self.call("PUT /v1/sessions/{session}/labels", &[session], labels).await;
        self.call("POST /v1/sessions/{session}/close", &[session], None).await;
    }

    async fn call_token_routes(&self) {
        let code = self.server.server.create_login_code().await;
        let login = self.call("POST /v1/login", &[], Some(json!({ "code": code }))).await;
        let secret = login["secret"].as_str().unwrap();
        let (method, path) = self.enter("POST /v1/logout", &[]);
        self.server.server.send_as(secret, method, &path, None).await.expect(204);
        let token = Some(json!({ "name": "wall", "scope": "read_only" }));
        let made = self.call("POST /v1/tokens", &[], token).await;
        let id = made["token"]["id"].as_str().unwrap();
        self.call("DELETE /v1/tokens/{id}", &[id], None).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_documented_route_succeeds() {
    let store = new_fleet_store();
    let server = TaskServer::start_with(tempfile::tempdir().unwrap(), |builder, _| {
        builder.shared_store(store).node(NodeOptions::new("one"))
    });
    let log = RouteLog { server: server.await, called: Mutex::default() };
    for route in ["GET /v1/whoami", "GET /v1/sessions", "GET /v1/tasks", "GET /v1/tokens"] {
        log.call(route, &[], None).await;
    }
    log.call("GET /v1/nodes", &[], None).await;
    let undo = Some(json!({ "draining": false }));
    log.call("POST /v1/nodes/{name}/drain", &["one"], undo).await;
    log.call("GET /v1/events", &[], None).await;
    log.query("GET /v1/definitions", &[], "cwd=/").await;
    log.call_token_routes().await;
    log.call_session_routes().await;
    let process = json!({ "kind": "process", "shell": "echo soup", "cwd": log.server.cwd() });
    let start = "POST /v1/sessions/{session}/tasks";
    let process = log.call(start, &[&log.server.session], Some(process)).await;
    let process = process["id"].as_str().unwrap();
    log.wait(process).await;
    log.call_task_routes(process).await;
    let asking = log.server.start_job("ask", json!("Salt?")).await;
    log.wait(&asking).await;
    log.call_message_routes(&asking).await;
    log.call_agent_routes(&log.server.start_baker().await).await;
    let waiting = log.server.start_job("echo", json!(1)).await;
    let limits = Some(json!({ "width": 5 }));
    log.call("PUT /v1/tasks/{task}/limits", &[&waiting], limits).await;
    log.call("POST /v1/tasks/{task}/stop", &[&waiting], None).await;
    // This server records no metrics.
    let (_, path) = log.enter("GET /metrics", &[]);
    log.server.server.get(&path).await.expect_problem(503, "unavailable");
    let document = log.server.server.get("/openapi.json").await.expect(200);
    let mut documented = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let methods = item.as_object().unwrap().keys();
        documented.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    assert_eq!(*log.called.lock().unwrap(), documented);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_is_an_internal_problem() {
    let server = TaskServer::start().await.server;
    let records = server.runtime.records();
    let kind = RecordKind::from_static("http-token");
    let stored = records.list(&RecordQuery::new(kind.clone())).await.unwrap().items.remove(0);
    let key = RecordKey::new(kind, &stored.key).unwrap();
    let damaged = NewRecord::new(key, b"{}".to_vec()).unwrap();
    records.put(&damaged, ExpectedVersion::Any).await.unwrap();
    let detail = server.get("/v1/whoami").await.expect_problem(500, "internal");
    assert!(!detail.contains(&server.operator), "{detail}");
    server.send_as("", Method::GET, "/healthz", None).await.expect(200);
}
