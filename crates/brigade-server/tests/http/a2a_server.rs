//! A server that publishes agents, and a client that writes its own requests of A2A.

use std::path::Path;
use std::sync::Arc;

use brigade_agent::definition::Definition;
use brigade_agent::permission::PermissionRules;
use brigade_agent::{Tool, ToolEffect, ToolError};
use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_protocol::http::TokenScope;
use brigade_runtime::{
    AgentOptions, Job, JobContext, JobError, OneModel, ProcessOptions, RuntimeBuilder,
};
use brigade_server::http::{A2aOptions, ListenOptions};
use brigade_sqlite::SqliteStore;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::support::{TEST_TIMEOUT, TestResponse, TestServer};

const SCRIPT: &str = "agent baker
turn
  say Baked.
agent painter
turn
  call ask_parent {\"question\": \"Red or blue?\"}
turn
  when blue
  say Painted blue.
agent careful
turn
  call bake {\"value\": \"bread\"}
turn
  when bread is baked
  say Baked with care.
turn
  say Not baked.
agent sleeper
turn
  fault hang always
  say Never.
agent clumsy
turn
  fault 400 always
  say Never.
agent hidden
turn
  say Hidden.
";

/// A job that does nothing.
pub(crate) const IDLE: Job<(), ()> = Job::new("idle");

const PUBLISHED: [&str; 5] = ["baker", "painter", "careful", "sleeper", "clumsy"];

pub(crate) struct A2aServer {
    pub(crate) server: TestServer,
    /// The secret of a client's token.
    pub(crate) secret: String,
    pub(crate) workspace: String,
    pub(crate) dir: TempDir,
}

impl A2aServer {
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let workspace = path.join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let server = TestServer::start_with(listen_options(&path), build(&path)).await;
        let workspace = workspace.to_str().unwrap().to_owned();
        server.runtime.session(&workspace).await.unwrap();
        let session = Some(workspace.as_str());
        let secret = server.create_token("caller", TokenScope::Client, session).await;
        Self { server, secret, workspace, dir }
    }

    pub(crate) async fn restart(self) -> Self {
        let path = self.dir.path().canonicalize().unwrap();
        let server = self.server.restart(build(&path)).await;
        Self { server, ..self }
    }

    /// Sends a request of JSON-RPC, and returns its response.
    pub(crate) async fn call(&self, agent: &str, method: &str, params: Value) -> Value {
        let response = self.open(agent, method, params).await;
        TestResponse::of(response).await.expect(200)
    }

    /// Sends a request of JSON-RPC, and returns its result.
    pub(crate) async fn result(&self, agent: &str, method: &str, params: Value) -> Value {
        let mut response = self.call(agent, method, params).await;
        assert!(response.get("error").is_none(), "{response}");
        response["result"].take()
    }

    /// Sends a request of JSON-RPC, and returns the code of its error.
    pub(crate) async fn error(&self, agent: &str, method: &str, params: Value) -> i64 {
        let response = self.call(agent, method, params).await;
        assert_eq!(response["id"], 7, "{response}");
        response["error"]["code"].as_i64().unwrap_or_else(|| panic!("{response}"))
    }

    pub(crate) async fn open(&self, agent: &str, method: &str, params: Value) -> Response {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        self.request(Method::POST, &format!("/a2a/{agent}"), Some(body.to_string())).await
    }

    /// Sends a request with the client's token and the version of the protocol.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Response {
        let request = self.server.client().request(method, self.server.url(path));
        let request = request.bearer_auth(&self.secret).header("a2a-version", "1.0");
        let request = request.header("content-type", "application/json");
        let request = request.body(body.unwrap_or_default());
        timeout(TEST_TIMEOUT, request.send()).await.unwrap().unwrap()
    }

    pub(crate) async fn http(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> TestResponse {
        let body = body.map(|body| body.to_string());
        TestResponse::of(self.request(method, path, body).await).await
    }

    /// Starts an agent, and returns its task at once.
    pub(crate) async fn start_task(&self, agent: &str, message: &str) -> Value {
        let params = json!({
            "message": new_message(message, "Go."), "configuration": { "returnImmediately": true },
        });
        self.result(agent, "SendMessage", params).await["task"].take()
    }

    /// Reads all events of a stream.
    pub(crate) async fn read_stream(response: Response) -> Vec<Value> {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let text = timeout(TEST_TIMEOUT, response.text()).await.unwrap().unwrap();
        let frames = text.split("\n\n").filter_map(|frame| frame.strip_prefix("data: "));
        frames.map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

pub(crate) fn new_message(id: &str, text: &str) -> Value {
    json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }] })
}

/// Returns a message to a task.
pub(crate) fn message_to(task: &Value, id: &str, part: Value) -> Value {
    json!({ "message": {
        "messageId": id, "role": "ROLE_USER", "taskId": task["id"], "parts": [part],
    } })
}

pub(crate) fn listen_options(directory: &Path) -> ListenOptions {
    let agents = PUBLISHED.map(str::to_owned).to_vec();
    let a2a = Some(A2aOptions { agents, directory: directory.to_owned() });
    ListenOptions { a2a, ..ListenOptions::dashboard() }
}

fn build(path: &Path) -> impl FnOnce(RuntimeBuilder) -> RuntimeBuilder + use<> {
    let store = path.join("store.db");
    let processes = path.join("processes");
    std::fs::create_dir_all(&processes).unwrap();
    let script = Script::parse("test", SCRIPT).unwrap();
    let bake = Tool::from_fn("bake", "Bakes.", ToolEffect::Once, |what: String| async move {
        Ok::<_, ToolError>(format!("{what} is baked"))
    });
    let model = OneModel(Arc::new(ScriptedModel::new(script)));
    let mut agents = AgentOptions::new(model).model("scripted").tool(bake);
    for name in PUBLISHED.into_iter().chain(["hidden"]) {
        let mut definition = Definition::new(name).description("Works.").prompt("Work.");
        if name == "careful" {
            let ask = vec!["bake".parse().unwrap()];
            definition.permissions = PermissionRules { ask, ..PermissionRules::default() };
        }
        agents = agents.definition(definition).unwrap();
    }
    move |builder| {
        let store = SqliteStore::open(store).unwrap();
        let builder = builder.job(IDLE, |_: JobContext, ()| async { Ok::<_, JobError>(()) });
        builder.store(store).processes(ProcessOptions::new(processes)).agents(agents)
    }
}
