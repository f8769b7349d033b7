//! A daemon on another machine, whose connections carry the frames of the socket.
//!
//! ```text
//!   DaemonClient ─ RemoteDaemon ─ StreamOpener, one for each server ─ a stream ─ DaemonConnection
//! ```
//!
//! This crate does not know how a stream is opened. The command line opens one over HTTP, with a
//! token that names the caller. All servers share one store, so that each of them can serve the
//! client.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::time::Instant;

use crate::bounded_line_reader::BoundedLineReader;
use crate::daemon_connection::{ClientError, ConnectionOptions, DaemonConnection};
use crate::frames::ClientIntroduction;

/// The variable with the token of a client for servers.
pub const TOKEN_VARIABLE: &str = "BRIGADE_TOKEN";

/// The time to open a stream and to exchange the first frames.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// The time in which a client that was connected looks for a server. It is longer than the takeover
/// of a node's sessions and the restart of a machine's service.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two attempts to reconnect.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(50);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The interval of heartbeats, below the time after which proxies cut an idle connection.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);

/// A stream of bytes to a daemon.
pub trait DaemonStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> DaemonStream for S {}

/// The future of a stream that is being opened.
pub type OpeningStream<'a> =
    Pin<Box<dyn Future<Output = Result<Box<dyn DaemonStream>, ClientError>> + Send + 'a>>;

/// Opens streams to one server.
pub trait StreamOpener: fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the server for messages. It contains no secret.
    fn server_name(&self) -> &str;

    /// Opens a stream on which the server expects a hello frame. The server knows the caller by
    /// then. [`ClientError::NoServer`] is the error after which another server, or a later attempt,
    /// may succeed.
    fn open_stream(&self) -> OpeningStream<'_>;
}

/// The servers of a daemon on another machine, or of a fleet. Clones share the server that was
/// found.
#[derive(Clone, Debug)]
pub struct RemoteDaemon {
    inner: Arc<RemoteDaemonInner>,
}

#[derive(Debug)]
struct RemoteDaemonInner {
    servers: Vec<Box<dyn StreamOpener>>,
    /// The index of the server that was connected last.
    current: AtomicUsize,
    /// A server was connected before, so that one that cannot be reached may come back.
    was_connected: AtomicBool,
}

impl RemoteDaemon {
    /// Creates the client's side of servers with one store. The first that can be reached is used.
    pub fn new(servers: Vec<Box<dyn StreamOpener>>) -> Self {
        let inner = RemoteDaemonInner {
            servers,
            current: AtomicUsize::new(0),
            was_connected: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the name of the server that was connected last, else of the first one.
    pub fn server_name(&self) -> &str {
        let current = self.inner.current.load(Ordering::Relaxed);
        self.inner.servers.get(current).map_or("", |server| server.server_name())
    }

    /// Connects to the last server, else to the next one that can be reached. A client that was
    /// connected before waits a while for one.
    pub async fn connect(
        &self,
        introduction: impl Into<ClientIntroduction>,
    ) -> Result<DaemonConnection, ClientError> {
        let introduction = introduction.into();
        let deadline = Instant::now() + RECONNECT_TIMEOUT;
        let mut pause = RECONNECT_PAUSE_MIN;
        loop {
            let error = match self.connect_once(introduction.clone()).await {
                Err(error @ ClientError::NoServer(_)) => error,
                other => return other,
            };
            let may_wait = self.inner.was_connected.load(Ordering::Relaxed);
            if !may_wait || Instant::now() + pause > deadline {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
        }
    }

    /// Connects to the first server that can be reached, from the last one on.
    pub(crate) async fn connect_once(
        &self,
        introduction: impl Into<ClientIntroduction>,
    ) -> Result<DaemonConnection, ClientError> {
        let introduction = introduction.into();
        let Self { inner } = self;
        let first = inner.current.load(Ordering::Relaxed);
        let mut problems = Vec::new();
        for index in (0..inner.servers.len()).map(|step| (first + step) % inner.servers.len()) {
            match connect_server(&*inner.servers[index], introduction.clone()).await {
                Ok(connection) => {
                    connection.check_protocol()?;
                    inner.current.store(index, Ordering::Relaxed);
                    inner.was_connected.store(true, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(ClientError::NoServer(problem)) => problems.push(problem),
                Err(error) => return Err(error),
            }
        }
        Err(ClientError::NoServer(problems.join("; ")))
    }
}

async fn connect_server(
    server: &dyn StreamOpener,
    introduction: ClientIntroduction,
) -> Result<DaemonConnection, ClientError> {
    let no_server =
        |problem: String| ClientError::NoServer(format!("{}: {problem}", server.server_name()));
    let connected = async {
        let (reader, writer) = tokio::io::split(server.open_stream().await?);
        let reader = BoundedLineReader::new(BufReader::new(reader));
        // The server knows the caller already.
        let options = ConnectionOptions { operator_key: None, heartbeat: Some(HEARTBEAT_INTERVAL) };
        DaemonConnection::open(reader, writer, introduction, options).await
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, connected).await {
        Ok(Err(ClientError::NoDaemon(error))) => Err(no_server(format!("it hung up: {error}"))),
        Ok(connected) => connected,
        Err(_) => {
            let seconds = CONNECT_TIMEOUT.as_secs();
            Err(no_server(format!("it did not answer within {seconds} seconds")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::frames::ClientRole;

    /// A server that welcomes a client, or that cannot be reached.
    #[derive(Clone, Debug)]
    struct FakeServer {
        name: &'static str,
        state: Arc<Mutex<FakeState>>,
        heartbeats: Arc<AtomicUsize>,
        ended_connections: Arc<AtomicUsize>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum FakeState {
        Up,
        Down,
        Silent,
        Refusing,
    }

    impl FakeServer {
        fn new(name: &'static str, state: FakeState) -> Self {
            let state = Arc::new(Mutex::new(state));
            let (heartbeats, ended_connections) = Default::default();
            Self { name, state, heartbeats, ended_connections }
        }

        fn set(&self, state: FakeState) {
            *self.state.lock().expect("a state") = state;
        }

        async fn open(&self) -> Result<Box<dyn DaemonStream>, ClientError> {
            let state = *self.state.lock().expect("a state");
            match state {
                FakeState::Down => Err(ClientError::NoServer(format!("{}: down", self.name))),
                FakeState::Refusing => Err(ClientError::NotServed("no token".to_owned())),
                FakeState::Silent => std::future::pending().await,
                FakeState::Up => {
                    let (near, far) = duplex(4096);
                    let version = self.name;
                    let heartbeats = self.heartbeats.clone();
                    let ended_connections = self.ended_connections.clone();
                    #[expect(clippy::disallowed_methods, reason = "ends with the connection")]
                    tokio::spawn(async move {
                        let mut far = BufReader::new(far);
                        let mut hello = String::new();
                        far.read_line(&mut hello).await.expect("a hello");
                        assert!(!hello.contains("operator_key"), "{hello}");
                        let welcome =
                            format!("{{\"protocol\":3,\"version\":\"{version}\",\"pid\":1}}\n");
                        far.write_all(welcome.as_bytes()).await.expect("a client");
                        let mut lines = far.lines();
                        while let Some(line) = lines.next_line().await.expect("lines") {
                            heartbeats.fetch_add(1, Ordering::Relaxed);
                            assert_eq!(line, r#"{"id":0,"cancel":true}"#);
                        }
                        ended_connections.fetch_add(1, Ordering::Relaxed);
                    });
                    Ok(Box::new(near))
                }
            }
        }
    }

    impl StreamOpener for FakeServer {
        fn server_name(&self) -> &str {
            self.name
        }

        fn open_stream(&self) -> OpeningStream<'_> {
            Box::pin(self.open())
        }
    }

    fn remote(servers: &[&FakeServer]) -> RemoteDaemon {
        let opener =
            |server: &&FakeServer| -> Box<dyn StreamOpener> { Box::new((*server).clone()) };
        RemoteDaemon::new(servers.iter().map(opener).collect())
    }

    async fn connect(remote: &RemoteDaemon) -> Result<String, ClientError> {
        let connection = remote.connect(ClientRole::Operator).await?;
        Ok(connection.daemon_version().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_server_stands_in_for_one_that_is_lost() {
        let first = FakeServer::new("first", FakeState::Up);
        let second = FakeServer::new("second", FakeState::Up);
        let remote = remote(&[&first, &second]);
        assert_eq!(remote.server_name(), "first");
        assert_eq!(connect(&remote).await.expect("a server"), "first");
        first.set(FakeState::Down);
        assert_eq!(connect(&remote).await.expect("a server"), "second");
        first.set(FakeState::Up);
        assert_eq!(connect(&remote).await.expect("a server"), "second", "it serves still");
        second.set(FakeState::Silent);
        assert_eq!(connect(&remote.clone()).await.expect("a server"), "first");
        assert_eq!(remote.server_name(), "first");
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_client_that_was_connected_waits_for_a_server() {
        let server = FakeServer::new("only", FakeState::Down);
        let remote = remote(&[&server]);
        let started_at = Instant::now();
        let error = connect(&remote).await.expect_err("it is down");
        assert_eq!(error.to_string(), "only: down");
        assert_eq!(started_at.elapsed(), Duration::ZERO);
        server.set(FakeState::Up);
        connect(&remote).await.expect("a server");
        server.set(FakeState::Down);
        let restart = async {
            tokio::time::sleep(RECONNECT_TIMEOUT / 2).await;
            server.set(FakeState::Up);
        };
        let (connected, ()) = tokio::join!(connect(&remote), restart);
        connected.expect("the server is back");
        server.set(FakeState::Down);
        connect(&remote).await.expect_err("it stays down");
        server.set(FakeState::Refusing);
        let refused_at = Instant::now();
        let error = connect(&remote).await.expect_err("no token");
        assert!(matches!(error, ClientError::NotServed(_)), "{error}");
        assert_eq!(refused_at.elapsed(), Duration::ZERO, "another attempt would change nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_has_heartbeats() {
        let server = FakeServer::new("only", FakeState::Up);
        let connection = remote(&[&server]).connect(ClientRole::Operator).await.expect("a server");
        tokio::time::sleep(HEARTBEAT_INTERVAL * 3 + HEARTBEAT_INTERVAL / 2).await;
        assert_eq!(server.heartbeats.load(Ordering::Relaxed), 3);
        drop(connection);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_handle_ends_its_connection() {
        let server = FakeServer::new("only", FakeState::Up);
        let remote = remote(&[&server]);
        // The order of the ready branches in the connection's task is random.
        for expected in 1..=20 {
            let connection = remote.connect(ClientRole::Operator).await.expect("a server");
            drop(connection.clone());
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(server.ended_connections.load(Ordering::Relaxed), expected - 1);
            drop(connection);
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(server.ended_connections.load(Ordering::Relaxed), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_names_every_server() {
        let down = FakeServer::new("first", FakeState::Down);
        let silent = FakeServer::new("second", FakeState::Silent);
        let error = connect(&remote(&[&down, &silent])).await.expect_err("no server");
        let expect = "first: down; second: it did not answer within 20 seconds";
        assert_eq!(error.to_string(), expect);
    }
}
