//! A daemon in this process with the jobs of a test, and clients of it.

use std::time::Duration;

use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_protocol::frames::{ClientRole, PROTOCOL_VERSION};
use brigade_protocol::operator_key::OperatorKey;
use brigade_protocol::{ClientError, DaemonConnection, StateDir, TaskTarget};
use brigade_runtime::{Runtime, RuntimeBuilder};
use brigade_server::daemon::{Daemon, DaemonOptions, StateDirLock};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const SESSION: &str = "kitchen";

/// A timeout that only a failing test reaches, also on a busy machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A daemon that shuts down when the value is dropped.
pub(crate) struct TestDaemon {
    pub(crate) state_dir: StateDir,
    pub(crate) runtime: Runtime,
    serve_task: JoinHandle<Result<(), Refusal>>,
    _shutdown: DropGuard,
    _dir: tempfile::TempDir,
}

impl TestDaemon {
    pub(crate) async fn start(build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Self {
        Self::start_with_options(|options| options, build).await
    }

    /// Starts a daemon that shuts down after this idle time.
    pub(crate) async fn start_with_idle_timeout(
        idle: Option<Duration>,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        Self::start_with_options(|options| DaemonOptions { idle_timeout: idle, ..options }, build)
            .await
    }

    pub(crate) async fn start_with_options(
        set: impl FnOnce(DaemonOptions) -> DaemonOptions,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::new(dir.path().join("state"));
        let lock = StateDirLock::acquire(&state_dir).unwrap();
        let options = set(DaemonOptions::new(state_dir.clone()));
        let daemon = Daemon::open(lock, options, build(Runtime::builder())).await.unwrap();
        let runtime = daemon.runtime().clone();
        let shutdown: CancellationToken = daemon.shutdown_token();
        #[expect(clippy::disallowed_methods, reason = "the daemon shuts down with this value")]
        let serve_task = tokio::spawn(daemon.run());
        Self { state_dir, runtime, serve_task, _shutdown: shutdown.drop_guard(), _dir: dir }
    }

    /// Waits until the daemon has shut down.
    pub(crate) async fn wait_stopped(self) {
        self.serve_task.await.unwrap().unwrap();
    }

    pub(crate) async fn operator(&self) -> DaemonConnection {
        DaemonConnection::connect(&self.state_dir, ClientRole::Operator).await.unwrap()
    }

    pub(crate) async fn client(&self, name: &str) -> DaemonConnection {
        DaemonConnection::connect(&self.state_dir, ClientRole::Client(name.to_owned()))
            .await
            .unwrap()
    }
}

pub(crate) fn target(task: &str) -> TaskTarget {
    TaskTarget { session: SESSION.to_owned(), task: task.to_owned() }
}

/// Returns the refusal of a reply. Panics if the reply is not a refusal of this kind.
#[track_caller]
pub(crate) fn expect_refusal<T: std::fmt::Debug>(
    reply: Result<T, ClientError>,
    kind: RefusalKind,
) -> Refusal {
    match reply {
        Err(ClientError::Refused(refusal)) if refusal.kind == kind => refusal,
        other => panic!("not refused as {kind:?}: {other:?}"),
    }
}

/// A client that writes and reads frames as JSON.
pub(crate) struct RawClient {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl RawClient {
    pub(crate) async fn connect(daemon: &TestDaemon) -> Self {
        let (client, welcome) = Self::connect_with_protocol(daemon, PROTOCOL_VERSION).await;
        assert!(welcome.get("pid").is_some(), "{welcome}");
        client
    }

    /// Connects with this protocol version. Returns the welcome frame too.
    pub(crate) async fn connect_with_protocol(daemon: &TestDaemon, protocol: u32) -> (Self, Value) {
        let key = OperatorKey::read(&daemon.state_dir);
        let hello = json!({
            "protocol": protocol, "version": "9.9.9", "role": "operator", "operator_key": key,
        });
        Self::connect_with_hello(daemon, &hello).await
    }

    pub(crate) async fn connect_with_hello(daemon: &TestDaemon, hello: &Value) -> (Self, Value) {
        let stream = UnixStream::connect(daemon.state_dir.socket_path()).await.unwrap();
        let (reader, writer) = stream.into_split();
        let mut client = Self { reader: BufReader::new(reader), writer };
        client.send(hello).await;
        let welcome = client.receive().await;
        (client, welcome)
    }

    pub(crate) async fn send(&mut self, line: &Value) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn receive(&mut self) -> Value {
        let mut line = String::new();
        let read = timeout(TEST_TIMEOUT, self.reader.read_line(&mut line)).await;
        read.expect("the daemon writes a frame").unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}
