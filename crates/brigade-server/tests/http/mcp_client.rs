//! An MCP client that writes its own requests.

use std::sync::atomic::{AtomicU64, Ordering};

use brigade_protocol::http::TokenScope;
use brigade_runtime::{ProcessOptions, RuntimeBuilder};
use brigade_sqlite::SqliteStore;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::support::{TEST_TIMEOUT, TestServer};

pub(crate) const LEGACY: &str = "2025-11-25";
const STATELESS: &str = "2026-07-28";

/// A server whose sessions run processes, and the workspace of one of them.
pub(crate) struct McpServer {
    pub(crate) server: TestServer,
    /// The canonical path, which is also the name of the session.
    pub(crate) workspace: String,
    pub(crate) session_id: String,
    dir: TempDir,
}

impl McpServer {
    pub(crate) async fn start() -> Self {
        Self::start_with(|builder| builder).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().canonicalize().unwrap().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let server = TestServer::start(|builder| change(build(&dir)(builder))).await;
        let opened = server.post("/v1/sessions", json!({ "workspace": workspace })).await;
        let session_id = opened.expect(201)["id"].as_str().unwrap().to_owned();
        let workspace = workspace.to_str().unwrap().to_owned();
        Self { server, workspace, session_id, dir }
    }

    pub(crate) async fn restart(self) -> Self {
        let server = self.server.restart(build(&self.dir)).await;
        Self { server, ..self }
    }

    /// Returns a client with an operator's token, whose processes need no sandbox.
    pub(crate) async fn client(&self, name: &str) -> McpClient {
        let secret = self.server.create_token(name, TokenScope::Operator, None).await;
        McpClient::new(&self.server, &secret, &format!("/mcp/{}", self.session_id))
    }

    /// Returns a client with a token of the workspace's session.
    pub(crate) async fn scoped_client(&self, name: &str) -> McpClient {
        let session = Some(self.workspace.as_str());
        let secret = self.server.create_token(name, TokenScope::Client, session).await;
        McpClient::new(&self.server, &secret, "/mcp")
    }
}

fn build(dir: &TempDir) -> impl FnOnce(RuntimeBuilder) -> RuntimeBuilder {
    let store = dir.path().join("store.db");
    let processes = dir.path().join("processes");
    std::fs::create_dir_all(&processes).unwrap();
    move |builder| {
        let store = SqliteStore::open(store).unwrap();
        builder.store(store).processes(ProcessOptions::new(processes))
    }
}

/// A client, with a session after `initialize`.
#[derive(Debug)]
pub(crate) struct McpClient {
    http: Client,
    url: String,
    secret: String,
    pub(crate) session: Option<String>,
    next_id: AtomicU64,
}

/// A response with the messages of its body: one JSON value, or a stream of events.
#[derive(Debug)]
pub(crate) struct McpReply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) messages: Vec<Value>,
    pub(crate) text: String,
}

impl McpClient {
    pub(crate) fn new(server: &TestServer, secret: &str, path: &str) -> Self {
        Self {
            http: server.client(),
            url: server.url(path),
            secret: secret.to_owned(),
            session: None,
            next_id: AtomicU64::new(1),
        }
    }

    /// Returns another client of the same token, without a session.
    pub(crate) fn again(&self) -> Self {
        Self {
            http: self.http.clone(),
            url: self.url.clone(),
            secret: self.secret.clone(),
            session: None,
            next_id: AtomicU64::new(1),
        }
    }

    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// Opens a session.
    pub(crate) async fn connect(mut self) -> Self {
        self.initialize(LEGACY).await;
        self
    }

    pub(crate) async fn initialize(&mut self, version: &str) -> Value {
        let params = json!({ "protocolVersion": version, "capabilities": {},
            "clientInfo": { "name": "raw", "version": "1" } });
        let reply = self.request("initialize", params).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        let id = reply.headers["mcp-session-id"].to_str().unwrap().to_owned();
        self.session = Some(id);
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.post(&initialized.to_string()).await.status, 202);
        reply.result()
    }

    /// Sends a request as an older client.
    pub(crate) async fn request(&self, method: &str, params: Value) -> McpReply {
        self.post(&self.message(method, params).to_string()).await
    }

    pub(crate) fn message(&self, method: &str, params: Value) -> Value {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }

    /// Calls a tool and returns its result.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        self.request("tools/call", params).await.result()
    }

    /// Sends a request as a client without sessions.
    pub(crate) async fn request_alone(&self, method: &str, mut params: Value) -> McpReply {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities":
                { "extensions": { "io.modelcontextprotocol/tasks": {} } },
        });
        let name = params["name"].as_str().or(params["taskId"].as_str());
        let name = name.map(str::to_owned);
        let message = self.message(method, params).to_string();
        let mut post = self.builder(Method::POST).headers(json_headers());
        post = post.header("mcp-protocol-version", STATELESS).header("mcp-method", method);
        if let Some(name) = name {
            post = post.header("mcp-name", name);
        }
        McpReply::of(post.body(message)).await
    }

    pub(crate) async fn call_alone(&self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        self.request_alone("tools/call", params).await.result()
    }

    /// Posts a body with the usual headers.
    pub(crate) async fn post(&self, body: &str) -> McpReply {
        self.post_with(&[], body.as_bytes().to_vec()).await
    }

    /// Posts a body with headers that replace the usual ones.
    pub(crate) async fn post_with(&self, headers: &[(&str, &str)], body: Vec<u8>) -> McpReply {
        let mut all = json_headers();
        for (name, value) in headers {
            let name = reqwest::header::HeaderName::from_bytes(name.as_bytes()).unwrap();
            all.insert(name, HeaderValue::from_str(value).unwrap());
        }
        McpReply::of(self.with_session(self.builder(Method::POST)).headers(all).body(body)).await
    }

    /// Posts a body, and returns the text of the response as far as it came.
    pub(crate) async fn post_until_cut(&self, body: &str) -> String {
        let mut response = self.open_post(body).await;
        let mut bytes = Vec::new();
        while let Ok(Some(chunk)) = timeout(TEST_TIMEOUT, response.chunk()).await.unwrap() {
            bytes.extend(chunk);
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Posts a body, and returns the response when its headers have arrived.
    pub(crate) async fn open_post(&self, body: &str) -> reqwest::Response {
        let request = self.with_session(self.builder(Method::POST)).headers(json_headers());
        timeout(TEST_TIMEOUT, request.body(body.to_owned()).send()).await.unwrap().unwrap()
    }

    pub(crate) async fn delete(&self) -> McpReply {
        McpReply::of(self.with_session(self.builder(Method::DELETE))).await
    }

    /// Opens the stream of messages that answer no request.
    pub(crate) async fn listen(&self) -> reqwest::Response {
        let get =
            self.with_session(self.builder(Method::GET)).header("accept", "text/event-stream");
        timeout(TEST_TIMEOUT, get.send()).await.unwrap().unwrap()
    }

    pub(crate) fn builder(&self, method: Method) -> RequestBuilder {
        self.http.request(method, &self.url).bearer_auth(&self.secret)
    }

    fn with_session(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.session {
            Some(id) => request.header("mcp-session-id", id),
            None => request,
        }
    }
}

fn json_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    let accept = HeaderValue::from_static("application/json, text/event-stream");
    headers.insert("accept", accept);
    headers
}

impl McpReply {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let response = timeout(TEST_TIMEOUT, request.send()).await.unwrap().unwrap();
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let text = timeout(TEST_TIMEOUT, response.text()).await.unwrap().unwrap();
        let kind = headers.get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        let messages = match kind.as_deref() {
            Some("text/event-stream") => read_events(&text),
            _ => serde_json::from_str(&text).into_iter().collect(),
        };
        Self { status, headers, messages, text }
    }

    /// Returns the result of a request that was served.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        let last = self.messages.last().unwrap();
        assert!(last["result"].is_object(), "{last}");
        last["result"].clone()
    }

    #[track_caller]
    pub(crate) fn expect_status(&self, status: u16) {
        assert_eq!(self.status, status, "{}", self.text);
    }

    /// Asserts the status and the code of an error.
    #[track_caller]
    pub(crate) fn expect_error(&self, status: u16, code: i64) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        let last = self.messages.last().unwrap_or_else(|| panic!("no message: {}", self.text));
        assert_eq!(last["error"]["code"], code, "{last}");
        last.clone()
    }
}

/// Returns the messages of a stream of events.
pub(crate) fn read_events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    data.filter_map(|data| serde_json::from_str(data.trim()).ok()).collect()
}

/// Returns the text of a tool's result.
#[track_caller]
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}
