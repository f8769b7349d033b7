//! A daemon in this process, with the jobs that a test needs.

use std::time::Duration;

use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_runtime::{Runtime, RuntimeBuilder};
use brigade_server::daemon::{Daemon, DaemonOptions, StateDirLock};
use brigade_server::frames::{ClientRole, PROTOCOL_VERSION};
use brigade_server::operator_key::OperatorKey;
use brigade_server::{ClientError, DaemonConnection, StateDir, TaskTarget};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const SESSION: &str = "kitchen";

/// Longer than anything here takes on a busy machine; reached only when a test fails.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(30);

pub(crate) struct House {
    pub(crate) places: StateDir,
    pub(crate) runtime: Runtime,
    serving: JoinHandle<Result<(), Refusal>>,
    _leave: DropGuard,
    _folder: tempfile::TempDir,
}

impl House {
    pub(crate) async fn open(with: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Self {
        Self::idling(None, with).await
    }

    /// One that leaves when it had nothing to do for so long.
    pub(crate) async fn idling(
        idle: Option<Duration>,
        with: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let places = StateDir::new(folder.path().join("state"));
        let claimed = StateDirLock::acquire(&places).unwrap();
        let options = DaemonOptions { state_dir: places.clone(), idle_timeout: idle };
        let daemon = Daemon::open(claimed, options, with(Runtime::builder())).await.unwrap();
        let (runtime, leaving): (_, CancellationToken) =
            (daemon.runtime().clone(), daemon.shutdown_token());
        #[expect(clippy::disallowed_methods, reason = "it leaves when the house is dropped")]
        let serving = tokio::spawn(daemon.run());
        Self { places, runtime, serving, _leave: leaving.drop_guard(), _folder: folder }
    }

    /// Waits until the daemon has left.
    pub(crate) async fn left(self) {
        self.serving.await.unwrap().unwrap();
    }

    pub(crate) async fn operator(&self) -> DaemonConnection {
        DaemonConnection::connect(&self.places, ClientRole::Operator).await.unwrap()
    }

    pub(crate) async fn client(&self, name: &str) -> DaemonConnection {
        DaemonConnection::connect(&self.places, ClientRole::Client(name.to_owned())).await.unwrap()
    }
}

pub(crate) fn target(task: &str) -> TaskTarget {
    TaskTarget { session: SESSION.to_owned(), task: task.to_owned() }
}

#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(
    answer: Result<T, ClientError>,
    kind: RefusalKind,
) -> Refusal {
    match answer {
        Err(ClientError::Refused(refusal)) if refusal.kind == kind => refusal,
        other => panic!("not refused as {kind:?}: {other:?}"),
    }
}

/// A client that speaks the protocol by hand.
pub(crate) struct RawClient {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl RawClient {
    pub(crate) async fn connect(house: &House) -> Self {
        let (client, welcome) = Self::greet(house, PROTOCOL_VERSION).await;
        assert!(welcome.get("pid").is_some(), "{welcome}");
        client
    }

    /// As one that speaks this protocol.
    pub(crate) async fn greet(house: &House, protocol: u32) -> (Self, Value) {
        let key = OperatorKey::read(&house.places);
        let hello = json!({
            "protocol": protocol, "version": "9.9.9", "who": "operator", "operator_key": key,
        });
        Self::say_hello(house, &hello).await
    }

    pub(crate) async fn say_hello(house: &House, hello: &Value) -> (Self, Value) {
        let stream = UnixStream::connect(house.places.socket_path()).await.unwrap();
        let (reader, writer) = stream.into_split();
        let mut client = Self { reader: BufReader::new(reader), writer };
        client.say(hello).await;
        let welcome = client.hear().await;
        (client, welcome)
    }

    pub(crate) async fn say(&mut self, line: &Value) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn hear(&mut self) -> Value {
        let mut line = String::new();
        let heard = timeout(TOO_LONG, self.reader.read_line(&mut line)).await;
        heard.expect("something is said").unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}
