//! One connection to the daemon, on the client's side.

use std::collections::HashMap;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_model::refusal::Refusal;
use serde::Serialize;
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::bounded_line_reader::BoundedLineReader;
use crate::call::Call;
use crate::daemon_lock::{DaemonPhase, LockHolder};
use crate::frames::{
    AckFrame, CancelFrame, ClientIntroduction, HelloFrame, OLDEST_PROTOCOL_VERSION,
    PROTOCOL_VERSION, RequestFrame, ServerFrame, ServerFrameBody, WelcomeFrame, encode_line,
    is_supported_protocol, parse_line, window_cost, write_line,
};
use crate::operator_key::OperatorKey;
use crate::requests::AnyRequest;
use crate::state_dir::{ShortSocketPath, StateDir};

/// The flow-control window of one request: bytes of items that are not consumed yet.
const WINDOW_BYTES: u32 = 1024 * 1024;
/// The number of consumed bytes after which the client acknowledges them.
const ACK_AFTER_BYTES: u32 = WINDOW_BYTES / 4;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The daemon refused the request.
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("no daemon is running: {0}")]
    NoDaemon(io::Error),
    #[error("the daemon did not start: {0}")]
    NotStarted(String),
    /// A daemon holds the lock of the state directory, and does not listen at its socket.
    #[error("{}", render_unreachable(*holder, socket))]
    Unreachable { holder: LockHolder, socket: PathBuf },
    /// This process may not connect to the daemon, which may or may not run.
    #[error("not permitted from here: {0}")]
    NotPermitted(io::Error),
    /// No server of a remote daemon can be reached, or serves now.
    #[error("{0}")]
    NoServer(String),
    /// A server does not serve this client: its token, its certificate or its version is wrong.
    #[error("{0}")]
    NotServed(String),
    /// The request may have been handled. It can be repeated with an idempotency key.
    #[error("the daemon disconnected before it replied")]
    Lost,
    /// The request was not handled. It can be sent to the next daemon.
    #[error("the daemon was shutting down and did not read the request")]
    NotReceived,
    #[error("the daemon is version {daemon}, this is {client}: {problem}", client = env!("CARGO_PKG_VERSION"))]
    VersionMismatch { daemon: String, problem: String },
    #[error("malformed frame from the daemon: {0}")]
    Malformed(String),
}

impl ClientError {
    /// Returns true if the next daemon can continue.
    pub fn is_lost_daemon(&self) -> bool {
        matches!(self, Self::Lost | Self::NotReceived)
    }
}

/// Renders the holder of the lock and the action to take.
fn render_unreachable(holder: LockHolder, socket: &Path) -> String {
    let name = match holder.pid {
        Some(pid) => format!("the daemon (pid {pid})"),
        None => "a daemon".to_owned(),
    };
    let end = holder.pid.map_or_else(|| "end it".to_owned(), |pid| format!("`kill {pid}`"));
    match holder.phase {
        Some(DaemonPhase::Starting) => {
            format!("{name} is still starting; try again, and read daemon.log for its progress")
        }
        Some(DaemonPhase::ShuttingDown) => {
            format!("{name} is still shutting down; try again in a moment")
        }
        Some(DaemonPhase::Serving) | None => format!(
            "{name} runs, but nobody listens at {}: the socket was removed, or the daemon hangs. Try \
             again; if that does not help, {end}: processes keep running, and the next command starts \
             another daemon",
            socket.display()
        ),
    }
}

/// A frame without an effect: no request has this id.
const HEARTBEAT: CancelFrame = CancelFrame { id: 0, cancel: true };

/// The settings of a connection, by the way to the daemon.
#[derive(Debug)]
pub(crate) struct ConnectionOptions {
    /// The key that identifies the operator, unless the stream does.
    pub(crate) operator_key: Option<OperatorKey>,
    /// The time without a request after which the client sends a frame without an effect. A proxy
    /// would cut a connection on which a wait sends nothing.
    pub(crate) heartbeat: Option<Duration>,
}

/// A connection to the daemon. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DaemonConnection {
    inner: Arc<DaemonConnectionInner>,
}

#[derive(Debug)]
struct DaemonConnectionInner {
    handshake: Handshake,
    next_request_id: AtomicU64,
    outgoing_lines: mpsc::UnboundedSender<Vec<u8>>,
    pending: Arc<Mutex<PendingRequests>>,
    _disconnect_on_drop: DropGuard,
}

/// The daemon on the other side.
#[derive(Debug)]
struct Handshake {
    protocol: u32,
    version: String,
    pid: u32,
}

/// The requests without a final reply, by id.
#[derive(Debug)]
enum PendingRequests {
    Active(HashMap<u64, mpsc::UnboundedSender<ServerFrameBody>>),
    Closed(DisconnectReason),
}

/// The reason why a connection ended.
#[derive(Debug)]
enum DisconnectReason {
    Lost,
    /// The daemon shut down. It read no request after this id.
    ShutDown {
        last_request_id: u64,
    },
    /// The daemon sent a malformed frame.
    Malformed(String),
}

impl PendingRequests {
    fn error_for(&self, id: u64) -> ClientError {
        match self {
            Self::Closed(DisconnectReason::ShutDown { last_request_id })
                if id > *last_request_id =>
            {
                ClientError::NotReceived
            }
            Self::Closed(DisconnectReason::Malformed(problem)) => {
                ClientError::Malformed(problem.clone())
            }
            _ => ClientError::Lost,
        }
    }
}

impl DaemonConnection {
    /// Connects to the daemon of a state directory, with its operator key if this process may read
    /// it.
    pub async fn connect(
        state_dir: &StateDir,
        introduction: impl Into<ClientIntroduction>,
    ) -> Result<Self, ClientError> {
        let socket = state_dir.socket_path();
        let failed = |error| connect_error(&socket, error);
        let short = ShortSocketPath::of(&socket).map_err(failed)?;
        let stream = UnixStream::connect(short.path()).await.map_err(failed)?;
        let owner = stream.peer_cred().map_err(ClientError::NoDaemon)?.uid();
        if owner != rustix::process::getuid().as_raw() {
            let problem = format!("{} is served by user {owner}", socket.display());
            return Err(ClientError::NotPermitted(io::Error::new(
                io::ErrorKind::PermissionDenied,
                problem,
            )));
        }
        let (reader, writer) = stream.into_split();
        let reader = BoundedLineReader::new(BufReader::new(reader));
        // Read the key only now: the daemon creates it before it listens.
        let operator_key = OperatorKey::read(state_dir);
        let options = ConnectionOptions { operator_key, heartbeat: None };
        Self::open(reader, writer, introduction.into(), options).await
    }

    /// Exchanges the first frames over a stream to a daemon.
    pub(crate) async fn open<R, W>(
        mut reader: BoundedLineReader<R>,
        mut writer: W,
        introduction: ClientIntroduction,
        options: ConnectionOptions,
    ) -> Result<Self, ClientError>
    where
        R: AsyncBufRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let ClientIntroduction { role, conversation } = introduction;
        let hello = HelloFrame {
            protocol: PROTOCOL_VERSION,
            oldest_protocol: Some(OLDEST_PROTOCOL_VERSION),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role,
            operator_key: options.operator_key,
            conversation: conversation.map(|id| id.to_string()),
        };
        write_line(&mut writer, &hello).await.map_err(ClientError::NoDaemon)?;
        let line = match reader.next_line().await {
            Ok(Some(line)) => line,
            Ok(None) => return Err(ClientError::NoDaemon(io::ErrorKind::ConnectionReset.into())),
            Err(error) => return Err(ClientError::NoDaemon(error)),
        };
        match parse_line(line).map_err(|error| ClientError::Malformed(error.to_string()))? {
            WelcomeFrame::Accepted { protocol, version, pid } => {
                let outgoing = OutgoingLines { writer, heartbeat: options.heartbeat };
                Ok(Self::spawn(reader, outgoing, Handshake { protocol, version, pid }))
            }
            // A daemon that knows the hello frame may refuse this client, and is not obsolete.
            WelcomeFrame::Refused { refused, protocol: Some(_), .. } => {
                Err(ClientError::Refused(refused))
            }
            WelcomeFrame::Refused { refused, version, protocol: None } => {
                Err(ClientError::VersionMismatch { daemon: version, problem: refused.message })
            }
        }
    }

    fn spawn<R, W>(
        reader: BoundedLineReader<R>,
        outgoing: OutgoingLines<W>,
        handshake: Handshake,
    ) -> Self
    where
        R: AsyncBufRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let disconnect = CancellationToken::new();
        // Bounded by the requests that this side sends.
        let (outgoing_lines, queue) = mpsc::unbounded_channel();
        let pending = Arc::new(Mutex::new(PendingRequests::Active(HashMap::new())));
        let shared_pending = pending.clone();
        let disconnected = disconnect.clone();
        #[expect(clippy::disallowed_methods, reason = "ends with the last handle")]
        tokio::spawn(async move {
            let exchange = async {
                let mut reading = pin!(read_frames(reader, &shared_pending));
                tokio::select! {
                    reason = &mut reading => reason,
                    // Frames that the daemon sent before it closed its end are still read.
                    () = outgoing.write(queue) => reading.await,
                }
            };
            let reason = tokio::select! {
                reason = exchange => reason,
                // The last handle also ends the lines to write, and the stream stays open until this
                // task drops both of its halves.
                () = disconnected.cancelled() => DisconnectReason::Lost,
            };
            *lock_pending(&shared_pending) = PendingRequests::Closed(reason);
        });
        let inner = DaemonConnectionInner {
            handshake,
            next_request_id: AtomicU64::new(1),
            outgoing_lines,
            pending,
            _disconnect_on_drop: disconnect.drop_guard(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns true for a clone of this connection.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Waits until the connection is closed.
    pub async fn wait_closed(&self) {
        self.inner.outgoing_lines.closed().await;
    }

    pub fn daemon_version(&self) -> &str {
        &self.inner.handshake.version
    }

    pub fn daemon_pid(&self) -> u32 {
        self.inner.handshake.pid
    }

    /// Fails if the daemon has no protocol in common. `status` and `shutdown` work nevertheless.
    pub fn check_protocol(&self) -> Result<(), ClientError> {
        let Handshake { protocol, version, .. } = &self.inner.handshake;
        if is_supported_protocol(*protocol) {
            return Ok(());
        }
        let problem = format!(
            "it speaks protocol {protocol}, and this {OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}"
        );
        Err(ClientError::VersionMismatch { daemon: version.clone(), problem })
    }

    /// Returns the protocol of this connection.
    pub fn protocol(&self) -> u32 {
        self.inner.handshake.protocol
    }

    /// Fails if the daemon is too old for a part of the request, which it would ignore.
    fn check_request(&self, request: &AnyRequest) -> Result<(), ClientError> {
        if request.is_version_independent() {
            return Ok(());
        }
        self.check_protocol()?;
        let Handshake { protocol, version, .. } = &self.inner.handshake;
        let required = request.required_protocol();
        if *protocol >= required {
            return Ok(());
        }
        let problem = format!("it speaks protocol {protocol}, and this request needs {required}");
        Err(ClientError::VersionMismatch { daemon: version.clone(), problem })
    }

    /// Sends a request and waits for its reply. Dropping the future cancels the request.
    pub async fn call<A: Call>(&self, request: A) -> Result<A::Reply, ClientError> {
        let mut replies = self.call_streaming(request)?;
        loop {
            if let ReplyStreamPart::Reply(reply) = replies.next_part().await? {
                return Ok(reply);
            }
        }
    }

    /// Sends a request and returns the stream of its items and its reply.
    pub fn call_streaming<A: Call>(&self, request: A) -> Result<ReplyStream<A>, ClientError> {
        let id = self.inner.next_request_id.fetch_add(1, Ordering::Relaxed);
        let request: AnyRequest = request.into();
        self.check_request(&request)?;
        let line = encode_line(&RequestFrame { id, request, window: WINDOW_BYTES })
            .map_err(|error| Refusal::limit(format!("the request cannot be sent: {error}")))?;
        // Bounded by the window of the request.
        let (sender, frames) = mpsc::unbounded_channel();
        match &mut *lock_pending(&self.inner.pending) {
            PendingRequests::Active(open) => drop(open.insert(id, sender)),
            closed @ PendingRequests::Closed(_) => return Err(closed.error_for(id)),
        }
        // If the connection is closed, the stream returns the error.
        let _ = self.inner.outgoing_lines.send(line);
        Ok(ReplyStream {
            id,
            connection: self.clone(),
            frames,
            unacked_bytes: 0,
            is_finished: false,
            kind: PhantomData,
        })
    }

    /// Sends a short frame that has no reply.
    fn send_frame<T: Serialize>(&self, frame: &T) {
        if let Ok(line) = encode_line(frame) {
            let _ = self.inner.outgoing_lines.send(line);
        }
    }
}

/// Explains a failed connection. A denied permission, as in a sandbox, does not mean that no daemon
/// runs.
fn connect_error(socket: &Path, error: io::Error) -> ClientError {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return ClientError::NoDaemon(error);
    }
    let problem = format!(
        "this process may not connect to {}: {error}; run it outside of the sandbox, or as the user \
         whose daemon it is",
        socket.display()
    );
    ClientError::NotPermitted(io::Error::new(error.kind(), problem))
}

/// An item of a stream, or its final reply.
#[derive(Debug)]
pub enum ReplyStreamPart<I, D> {
    Item(I),
    Reply(D),
}

/// The items and the reply of one request. Dropping it before the reply cancels the request.
#[derive(Debug)]
pub struct ReplyStream<A> {
    id: u64,
    connection: DaemonConnection,
    frames: mpsc::UnboundedReceiver<ServerFrameBody>,
    /// Consumed bytes of items that are not acknowledged yet.
    unacked_bytes: u32,
    is_finished: bool,
    kind: PhantomData<fn(A)>,
}

impl<A: Call> ReplyStream<A> {
    pub async fn next_part(&mut self) -> Result<ReplyStreamPart<A::Item, A::Reply>, ClientError> {
        let Some(frame) = self.next_frame().await else {
            self.is_finished = true;
            return Err(lock_pending(&self.connection.inner.pending).error_for(self.id));
        };
        let malformed = |error: serde_json::Error| ClientError::Malformed(error.to_string());
        match frame {
            ServerFrameBody::Item(item) => {
                self.unacked_bytes =
                    self.unacked_bytes.saturating_add(window_cost(&item, WINDOW_BYTES));
                serde_json::from_str(item.get()).map(ReplyStreamPart::Item).map_err(malformed)
            }
            ServerFrameBody::Reply(reply) => {
                self.is_finished = true;
                serde_json::from_str(reply.get()).map(ReplyStreamPart::Reply).map_err(malformed)
            }
            ServerFrameBody::Refused(refusal) => {
                self.is_finished = true;
                Err(refusal.into())
            }
            ServerFrameBody::ShuttingDown => {
                self.is_finished = true;
                Err(ClientError::Lost)
            }
        }
    }
}

impl<A> ReplyStream<A> {
    /// Returns the next frame. Before it waits, it acknowledges all consumed bytes.
    async fn next_frame(&mut self) -> Option<ServerFrameBody> {
        let received = self.frames.try_recv().ok();
        if self.unacked_bytes >= ACK_AFTER_BYTES || (received.is_none() && self.unacked_bytes > 0) {
            let ack = AckFrame { id: self.id, ack_bytes: std::mem::take(&mut self.unacked_bytes) };
            self.connection.send_frame(&ack);
        }
        match received {
            Some(frame) => Some(frame),
            None => self.frames.recv().await,
        }
    }
}

impl<A> Drop for ReplyStream<A> {
    fn drop(&mut self) {
        if let PendingRequests::Active(open) = &mut *lock_pending(&self.connection.inner.pending) {
            open.remove(&self.id);
        }
        if !self.is_finished {
            self.connection.send_frame(&CancelFrame { id: self.id, cancel: true });
        }
    }
}

/// Delivers frames to their requests until the connection ends.
async fn read_frames<R: AsyncBufRead + Unpin>(
    mut reader: BoundedLineReader<R>,
    pending: &Mutex<PendingRequests>,
) -> DisconnectReason {
    loop {
        let parsed = match reader.next_line().await {
            Ok(Some(line)) => parse_line::<ServerFrame>(line),
            Ok(None) => return DisconnectReason::Lost,
            Err(error) => Err(error),
        };
        let frame = match parsed {
            Ok(frame) => frame,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return DisconnectReason::Malformed(format!("a reply cannot be read: {error}"));
            }
            Err(_) => return DisconnectReason::Lost,
        };
        if matches!(frame.body, ServerFrameBody::ShuttingDown) {
            return DisconnectReason::ShutDown { last_request_id: frame.id };
        }
        if let PendingRequests::Active(open) = &*lock_pending(pending)
            && let Some(sender) = open.get(&frame.id)
        {
            // Sending fails if the stream of the request was dropped.
            let _ = sender.send(frame.body);
        }
    }
}

/// The client's half of a connection.
struct OutgoingLines<W> {
    writer: W,
    heartbeat: Option<Duration>,
}

impl<W: AsyncWrite + Unpin> OutgoingLines<W> {
    async fn write(self, mut lines: mpsc::UnboundedReceiver<Vec<u8>>) {
        let Self { mut writer, heartbeat } = self;
        while let Some(line) = next_line(&mut lines, heartbeat).await {
            // A stream with TLS holds bytes back until it is flushed.
            if writer.write_all(&line).await.is_err() || writer.flush().await.is_err() {
                return;
            }
        }
    }
}

/// Returns the next line, or a heartbeat if there is none for some time.
async fn next_line(
    lines: &mut mpsc::UnboundedReceiver<Vec<u8>>,
    heartbeat: Option<Duration>,
) -> Option<Vec<u8>> {
    let Some(heartbeat) = heartbeat else { return lines.recv().await };
    match tokio::time::timeout(heartbeat, lines.recv()).await {
        Ok(line) => line,
        Err(_) => encode_line(&HEARTBEAT).ok(),
    }
}

fn lock_pending(pending: &Mutex<PendingRequests>) -> MutexGuard<'_, PendingRequests> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_denied_connection_does_not_count_as_a_missing_daemon() {
        let of = |errno: Errno| connect_error(Path::new("/state/socket"), errno.into()).to_string();
        for forbidden in [Errno::PERM, Errno::ACCESS] {
            let text = of(forbidden);
            assert!(text.starts_with("not permitted from here: "), "{text}");
            assert!(text.contains("/state/socket"), "{text}");
        }
        for missing in [Errno::NOENT, Errno::CONNREFUSED] {
            assert!(of(missing).starts_with("no daemon is running: "), "{}", of(missing));
        }
    }
}
