//! A server in this process, and clients of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::refusal::Refusal;
use brigade_protocol::StateDir;
use brigade_protocol::daemon_connection::DaemonConnection;
use brigade_protocol::frames::ClientRole;
use brigade_protocol::http::TokenScope;
use brigade_protocol::requests::{CreateLoginRequest, CreateTokenRequest};
use brigade_runtime::{Runtime, RuntimeBuilder};
use brigade_server::daemon::{Daemon, DaemonOptions, StateDirLock};
use brigade_server::http::ListenOptions;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const SESSION: &str = "kitchen";

/// A timeout that only a failing test reaches, also on a busy machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A server that shuts down when the value is dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) runtime: Runtime,
    pub(crate) state_dir: StateDir,
    /// The secret of an operator's token.
    pub(crate) operator: String,
    serve_task: JoinHandle<Result<(), Refusal>>,
    shutdown: DropGuard,
    _dir: Arc<tempfile::TempDir>,
}

/// The response of a request: its status, headers and JSON.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl TestServer {
    pub(crate) async fn start(build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Self {
        Self::start_with(ListenOptions::dashboard(), build).await
    }

    pub(crate) async fn start_with(
        listen: ListenOptions,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        Self::start_in(dir, listen, build).await
    }

    /// Returns the error of a server that cannot start.
    pub(crate) async fn try_start(listen: ListenOptions) -> Result<(), String> {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::new(dir.path().join("state"));
        let lock = StateDirLock::acquire(&state_dir).unwrap();
        let options = DaemonOptions { listen: Some(listen), ..DaemonOptions::new(state_dir) };
        let daemon = Daemon::open(lock, options, Runtime::builder()).await;
        daemon.map(|_| ()).map_err(|error| error.to_string())
    }

    async fn start_in(
        dir: Arc<tempfile::TempDir>,
        listen: ListenOptions,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        let state_dir = StateDir::new(dir.path().join("state"));
        let lock = StateDirLock::acquire(&state_dir).unwrap();
        let options = DaemonOptions::new(state_dir.clone());
        let daemon = Daemon::open(lock, options, build(Runtime::builder())).await.unwrap();
        let url = daemon.listen(listen).await.unwrap();
        let address = url.split("://").nth(1).unwrap().parse().unwrap();
        let runtime = daemon.runtime().clone();
        let shutdown: CancellationToken = daemon.shutdown_token();
        #[expect(clippy::disallowed_methods, reason = "the daemon shuts down with this value")]
        let serve_task = tokio::spawn(daemon.run());
        let mut server = Self {
            address,
            runtime,
            state_dir,
            operator: String::new(),
            serve_task,
            shutdown: shutdown.drop_guard(),
            _dir: dir,
        };
        server.operator = server.create_token("boss", TokenScope::Operator, None).await;
        server
    }

    /// Shuts the server down, and starts another one in the same state directory.
    pub(crate) async fn restart(
        self,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        let dir = self._dir.clone();
        drop(self.runtime);
        drop(self.shutdown);
        timeout(TEST_TIMEOUT, self.serve_task).await.unwrap().unwrap().unwrap();
        Self::start_in(dir, ListenOptions::dashboard(), build).await
    }

    pub(crate) async fn connect(&self) -> DaemonConnection {
        DaemonConnection::connect(&self.state_dir, ClientRole::Operator).await.unwrap()
    }

    /// Creates a token as the operator at a terminal does, and returns its secret.
    pub(crate) async fn create_token(
        &self,
        name: &str,
        scope: TokenScope,
        session: Option<&str>,
    ) -> String {
        let session = session.map(str::to_owned);
        let name = name.to_owned();
        let request = CreateTokenRequest { name, scope, session, expires_in_ms: None };
        self.connect().await.call(request).await.unwrap().secret
    }

    pub(crate) async fn create_login_code(&self) -> String {
        self.connect().await.call(CreateLoginRequest {}).await.unwrap().code
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends a request as the operator.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> TestResponse {
        self.send_as(&self.operator, method, path, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> TestResponse {
        self.send(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> TestResponse {
        self.send(Method::POST, path, Some(body)).await
    }

    /// Sends a request with a token; without one if the secret is empty.
    pub(crate) async fn send_as(
        &self,
        secret: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> TestResponse {
        let mut headers = HeaderMap::new();
        if !secret.is_empty() {
            let bearer = HeaderValue::from_str(&format!("Bearer {secret}")).unwrap();
            headers.insert("authorization", bearer);
        }
        if body.is_some() {
            headers.insert("content-type", HeaderValue::from_static("application/json"));
        }
        let request = self.client().request(method, self.url(path)).headers(headers);
        let request = request.body(body.map(|body| body.to_string()).unwrap_or_default());
        TestResponse::of(timeout(TEST_TIMEOUT, request.send()).await.unwrap().unwrap()).await
    }

    pub(crate) fn client(&self) -> Client {
        // Without a provider of TLS no client can be built. An error means that there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Client::builder().no_proxy().build().unwrap()
    }
}

impl TestResponse {
    pub(crate) async fn of(response: reqwest::Response) -> Self {
        let status = response.status();
        let headers = response.headers().clone();
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Self { status, headers, body }
    }

    /// Returns the body of a response with this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self.body
    }

    /// Returns the detail of a problem with this status and code.
    #[track_caller]
    pub(crate) fn expect_problem(self, status: u16, code: &str) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.body["code"], code, "{}", self.body);
        assert_eq!(self.body["status"], status, "{}", self.body);
        self.body["detail"].as_str().unwrap().to_owned()
    }
}
