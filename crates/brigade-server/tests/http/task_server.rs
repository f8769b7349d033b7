//! A server with jobs, processes and agents, and requests with headers.

use std::path::Path;
use std::sync::Arc;

use brigade_agent::{Tool, ToolEffect, ToolError};
use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_model::limits::{Money, Usage};
use brigade_model::refusal::Refusal;
use brigade_protocol::http::TokenScope;
use brigade_runtime::{
    AgentOptions, Job, JobContext, JobError, OneModel, ProcessOptions, RuntimeBuilder,
};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{TEST_TIMEOUT, TestResponse, TestServer};

/// Waits for a message, and returns it.
const ECHO: Job<Value, Value> = Job::new("echo");
/// Asks a question, and returns the answer.
const ASK: Job<String, String> = Job::new("ask");
/// Sends a message to its client, and ends.
const TELL: Job<String, ()> = Job::new("notify");
/// Fails.
const BURN: Job<(), ()> = Job::new("burn");
/// Starts a child that waits for a message, and waits for it.
const COOK: Job<(), Value> = Job::new("cook");

const SCRIPT: &str = "agent Baker
turn
  think Bread is best.
  say I will bake.
  call bake {\"value\": \"bread\"}
turn
  when bread is baked
  say Baked.
turn
  say Not baked.
";

/// A server and the session of its tests.
pub(crate) struct TaskServer {
    pub(crate) server: TestServer,
    /// The id of the session.
    pub(crate) session: String,
    pub(crate) dir: tempfile::TempDir,
}

pub(crate) fn build(builder: RuntimeBuilder, dir: &Path) -> RuntimeBuilder {
    let script = Script::parse("test", SCRIPT).unwrap();
    let bake = Tool::from_fn("bake", "Bakes.", ToolEffect::Once, |what: String| async move {
        Ok::<_, ToolError>(format!("{what} is baked"))
    });
    let model = OneModel(Arc::new(ScriptedModel::new(script)));
    let agents = AgentOptions::new(model).model("scripted").tool(bake);
    let processes = ProcessOptions::new(dir.join("processes"));
    builder
        .agents(agents)
        .processes(processes)
        .job(ECHO, async |context: JobContext, _: Value| {
            let message = context.receive().await?;
            message.body.decode::<Value>()
        })
        .job(ASK, async |context: JobContext, question: String| {
            context.charge(Usage { tokens: 7, money: Money(500_000) }).await?;
            context.ask::<String>(question).await
        })
        .job(TELL, async |context: JobContext, text: String| {
            context.send_parent(text).await?;
            Ok::<_, Refusal>(())
        })
        .job(BURN, async |_: JobContext, ()| Err::<(), _>(JobError::from(Refusal::invalid("hot"))))
        .job(COOK, async |context: JobContext, ()| {
            let child = context.spawn(ECHO.with(json!("child"))).await?;
            context.result(&child).await
        })
}

impl TaskServer {
    pub(crate) async fn start() -> Self {
        Self::start_with(tempfile::tempdir().unwrap(), |builder, _| builder).await
    }

    /// Starts a server with this directory and further options.
    pub(crate) async fn start_with(
        dir: tempfile::TempDir,
        change: impl FnOnce(RuntimeBuilder, &Path) -> RuntimeBuilder,
    ) -> Self {
        let path = dir.path().canonicalize().unwrap();
        let server = TestServer::start(|builder| change(build(builder, &path), &path)).await;
        let name = path.to_str().unwrap();
        let session = server.runtime.session(name).await.unwrap().id().to_string();
        Self { server, session, dir }
    }

    pub(crate) async fn client(&self, name: &str) -> String {
        self.server.create_token(name, TokenScope::Client, Some(&self.cwd())).await
    }

    /// Starts a task as the bearer of a token, and returns its id.
    pub(crate) async fn start_as(&self, secret: &str, body: Value) -> String {
        let path = format!("/v1/sessions/{}/tasks", self.session);
        let task = self.server.send_as(secret, Method::POST, &path, Some(body)).await.expect(201);
        task["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn start_job(&self, job: &str, arguments: Value) -> String {
        let body = json!({ "kind": "job", "job": job, "arguments": arguments });
        self.start_as(&self.server.operator, body).await
    }

    pub(crate) async fn start_shell(&self, line: &str) -> String {
        let body = json!({ "kind": "process", "shell": line, "cwd": self.cwd() });
        self.start_as(&self.server.operator, body).await
    }

    /// Starts the agent that asks before it bakes.
    pub(crate) async fn start_baker(&self) -> String {
        let body = json!({
            "kind": "agent", "prompt": "Bake.", "name": "Baker", "cwd": self.cwd(),
            "permissions": { "ask": ["bake"] },
        });
        self.start_as(&self.server.operator, body).await
    }

    pub(crate) fn cwd(&self) -> String {
        self.dir.path().canonicalize().unwrap().to_str().unwrap().to_owned()
    }

    pub(crate) async fn post(&self, task: &str, action: &str, body: Value) -> TestResponse {
        self.server.post(&format!("/v1/tasks/{task}/{action}"), body).await
    }

    pub(crate) async fn get(&self, task: &str, part: &str) -> TestResponse {
        self.server.get(&format!("/v1/tasks/{task}{part}")).await
    }

    /// Waits until a task has ended or needs input, and returns the result of the wait.
    pub(crate) async fn wait(&self, task: &str) -> Value {
        let body = json!({ "tasks": [task], "until": "ended_or_input" });
        let path = format!("/v1/sessions/{}/wait", self.session);
        let waited = self.server.post(&path, body).await.expect(200);
        assert_eq!(waited["done"], true, "{waited}");
        waited
    }

    /// Sends a request with headers: `POST` with a body, and `GET` without one.
    pub(crate) async fn send_with(
        &self,
        secret: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> TestResponse {
        let client = self.server.client();
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = client.request(method, self.server.url(path)).bearer_auth(secret);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        TestResponse::of(timeout(TEST_TIMEOUT, request.send()).await.unwrap().unwrap()).await
    }

    /// Sends bytes as JSON.
    pub(crate) async fn post_bytes(&self, path: &str, body: impl Into<Vec<u8>>) -> TestResponse {
        let client = self.server.client();
        let request = client.post(self.server.url(path)).bearer_auth(&self.server.operator);
        let request = request.header("content-type", "application/json").body(body.into());
        TestResponse::of(timeout(TEST_TIMEOUT, request.send()).await.unwrap().unwrap()).await
    }
}
