//! Asking a daemon.

use std::collections::HashMap;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_model::refusal::{Refusal, RefusalKind};
use serde::Serialize;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
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

/// Bytes of one question's items that may be here or on their way, not yet taken.
const WINDOW_BYTES: u32 = 1024 * 1024;
/// When so much was taken the daemon is told, at the latest.
const ACK_AFTER_BYTES: u32 = WINDOW_BYTES / 4;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The daemon said no.
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("no daemon is running: {0}")]
    NoDaemon(io::Error),
    #[error("the daemon did not start: {0}")]
    NotStarted(String),
    /// One holds the lock of the state folder, and nobody listens at its socket.
    #[error("{}", render_unreachable(*holder, socket))]
    Unreachable { holder: LockHolder, socket: PathBuf },
    /// There may be one, and this process may not speak with it.
    #[error("not permitted from here: {0}")]
    NotPermitted(io::Error),
    /// It may have happened. With a key it can be asked again.
    #[error("the daemon went away before it answered")]
    Lost,
    /// It did not happen. It can be asked of the next daemon.
    #[error("the daemon was leaving and did not hear the question")]
    NotReceived,
    #[error("the daemon is version {daemon}, this is {client}: {problem}", client = env!("CARGO_PKG_VERSION"))]
    VersionMismatch { daemon: String, problem: String },
    #[error("the daemon said something else than it should: {0}")]
    Malformed(String),
}

/// Says who holds the folder and what to do about it.
fn render_unreachable(holder: LockHolder, socket: &Path) -> String {
    let name = match holder.pid {
        Some(pid) => format!("the daemon (pid {pid})"),
        None => "a daemon".to_owned(),
    };
    let end = holder.pid.map_or_else(|| "end it".to_owned(), |pid| format!("`kill {pid}`"));
    match holder.phase {
        Some(DaemonPhase::Starting) => {
            format!("{name} is still starting; try again, and daemon.log says how far it is")
        }
        Some(DaemonPhase::ShuttingDown) => {
            format!("{name} is still leaving; try again in a moment")
        }
        Some(DaemonPhase::Serving) | None => format!(
            "{name} runs, but nobody listens at {}: the socket was removed, or the daemon hangs. Try again; if \
             that does not help, {end}: processes go on, and the next command starts another daemon",
            socket.display()
        ),
    }
}

/// A connection. Cheap to clone.
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

/// Who waits for what.
#[derive(Debug)]
enum PendingRequests {
    Active(HashMap<u64, mpsc::UnboundedSender<ServerFrameBody>>),
    Closed(DisconnectReason),
}

/// How a conversation came to its end.
#[derive(Debug)]
enum DisconnectReason {
    Lost,
    /// The daemon said that it leaves. This is the last question that it heard.
    ShutDown {
        last_request_id: u64,
    },
    /// What it said cannot be understood.
    Malformed(String),
}

impl PendingRequests {
    fn error_for(&self, id: u64) -> ClientError {
        match self {
            Self::Closed(DisconnectReason::ShutDown { last_request_id: heard }) if id > *heard => {
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
    /// Connects to the daemon of a state directory, with its operator key where this process may read
    /// it.
    pub async fn connect(
        places: &StateDir,
        who: impl Into<ClientIntroduction>,
    ) -> Result<Self, ClientError> {
        let ClientIntroduction { role: who, conversation } = who.into();
        let socket = places.socket_path();
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
        let (reader, mut writer) = stream.into_split();
        let mut reader = BoundedLineReader::new(BufReader::new(reader));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        // Read only now: the daemon makes the key before it listens.
        let operator_key = OperatorKey::read(places);
        let oldest = Some(OLDEST_PROTOCOL_VERSION);
        let conversation = conversation.map(|id| id.to_string());
        let hello = HelloFrame {
            protocol: PROTOCOL_VERSION,
            oldest_protocol: oldest,
            version,
            role: who,
            operator_key,
            conversation,
        };
        write_line(&mut writer, &hello).await.map_err(ClientError::NoDaemon)?;
        let line = match reader.next_line().await {
            Ok(Some(line)) => line,
            Ok(None) => return Err(ClientError::NoDaemon(io::ErrorKind::ConnectionReset.into())),
            Err(error) => return Err(ClientError::NoDaemon(error)),
        };
        match parse_line(line).map_err(|error| ClientError::Malformed(error.to_string()))? {
            WelcomeFrame::Accepted { protocol, version, pid } => {
                Ok(Self::spawn(reader, writer, Handshake { protocol, version, pid }))
            }
            WelcomeFrame::Refused { refused, .. }
                if matches!(refused.kind, RefusalKind::Forbidden | RefusalKind::Limit) =>
            {
                Err(ClientError::Refused(refused))
            }
            WelcomeFrame::Refused { refused, version } => {
                Err(ClientError::VersionMismatch { daemon: version, problem: refused.message })
            }
        }
    }

    fn spawn(
        reader: BoundedLineReader<BufReader<OwnedReadHalf>>,
        writer: OwnedWriteHalf,
        daemon: Handshake,
    ) -> Self {
        let hang_up = CancellationToken::new();
        // Bounded by the questions that this side asks.
        let (lines, waiting) = mpsc::unbounded_channel();
        let open = Arc::new(Mutex::new(PendingRequests::Active(HashMap::new())));
        let (heard, hung_up) = (open.clone(), hang_up.clone());
        #[expect(clippy::disallowed_methods, reason = "ends with the last handle")]
        tokio::spawn(async move {
            let listening = read_frames(reader, &heard);
            tokio::pin!(listening);
            let end = tokio::select! {
                end = &mut listening => end,
                // What it said before it went away is still heard.
                () = write_lines(writer, waiting) => listening.await,
                () = hung_up.cancelled() => DisconnectReason::Lost,
            };
            *lock_pending(&heard) = PendingRequests::Closed(end);
        });
        let (next, _hang_up) = (AtomicU64::new(1), hang_up.drop_guard());
        let inner = DaemonConnectionInner {
            handshake: daemon,
            next_request_id: next,
            outgoing_lines: lines,
            pending: open,
            _disconnect_on_drop: _hang_up,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns when the connection is over.
    pub async fn wait_closed(&self) {
        self.inner.outgoing_lines.closed().await;
    }

    /// The version of the daemon.
    pub fn daemon_version(&self) -> &str {
        &self.inner.handshake.version
    }

    pub fn daemon_pid(&self) -> u32 {
        self.inner.handshake.pid
    }

    /// Whether it can be asked everything. Who it is, and to make way, it can always be asked.
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

    /// Asks and waits for the answer. Given up, the question is taken back.
    pub async fn call<A: Call>(&self, question: A) -> Result<A::Reply, ClientError> {
        let mut answers = self.call_streaming(question)?;
        loop {
            if let ReplyStreamPart::Reply(done) = answers.next_part().await? {
                return Ok(done);
            }
        }
    }

    /// Asks, and hears everything that comes before the answer too.
    pub fn call_streaming<A: Call>(&self, question: A) -> Result<ReplyStream<A>, ClientError> {
        let id = self.inner.next_request_id.fetch_add(1, Ordering::Relaxed);
        let ask: AnyRequest = question.into();
        if !ask.is_version_independent() {
            self.check_protocol()?;
        }
        let question = encode_line(&RequestFrame { id, request: ask, window: WINDOW_BYTES })
            .map_err(|error| Refusal::limit(format!("the question cannot be asked: {error}")))?;
        // Bounded by the room that the daemon is given.
        let (sender, said) = mpsc::unbounded_channel();
        match &mut *lock_pending(&self.inner.pending) {
            PendingRequests::Active(open) => drop(open.insert(id, sender)),
            over @ PendingRequests::Closed(_) => return Err(over.error_for(id)),
        }
        // Where nobody takes it any more, the answer says so.
        let _ = self.inner.outgoing_lines.send(question);
        Ok(ReplyStream {
            id,
            connection: self.clone(),
            frames: said,
            unacked_bytes: 0,
            is_finished: false,
            kind: PhantomData,
        })
    }

    /// Says what is short and has no answer.
    fn send_frame<T: Serialize>(&self, what: &T) {
        if let Ok(line) = encode_line(what) {
            let _ = self.inner.outgoing_lines.send(line);
        }
    }
}

/// Why a socket could not be connected to. A sandbox that forbids it does not say that nobody is there.
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

/// What a question brings.
#[derive(Debug)]
pub enum ReplyStreamPart<I, D> {
    Item(I),
    Reply(D),
}

/// The answers to one question. Dropped before the last, the question is taken back.
#[derive(Debug)]
pub struct ReplyStream<A> {
    id: u64,
    connection: DaemonConnection,
    frames: mpsc::UnboundedReceiver<ServerFrameBody>,
    /// Bytes of items that the daemon does not know to be taken.
    unacked_bytes: u32,
    is_finished: bool,
    kind: PhantomData<fn(A)>,
}

impl<A: Call> ReplyStream<A> {
    pub async fn next_part(&mut self) -> Result<ReplyStreamPart<A::Item, A::Reply>, ClientError> {
        let Some(said) = self.next_frame().await else {
            self.is_finished = true;
            return Err(lock_pending(&self.connection.inner.pending).error_for(self.id));
        };
        let garbled = |error: serde_json::Error| ClientError::Malformed(error.to_string());
        match said {
            ServerFrameBody::Item(item) => {
                self.unacked_bytes =
                    self.unacked_bytes.saturating_add(window_cost(&item, WINDOW_BYTES));
                serde_json::from_str(item.get()).map(ReplyStreamPart::Item).map_err(garbled)
            }
            ServerFrameBody::Reply(done) => {
                self.is_finished = true;
                serde_json::from_str(done.get()).map(ReplyStreamPart::Reply).map_err(garbled)
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
    /// Whatever is here, else what comes. Before it waits the daemon knows of all that was taken.
    async fn next_frame(&mut self) -> Option<ServerFrameBody> {
        let here = self.frames.try_recv().ok();
        if self.unacked_bytes >= ACK_AFTER_BYTES || (here.is_none() && self.unacked_bytes > 0) {
            let more = AckFrame { id: self.id, ack_bytes: std::mem::take(&mut self.unacked_bytes) };
            self.connection.send_frame(&more);
        }
        match here {
            Some(said) => Some(said),
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

/// Hears until the daemon is gone.
async fn read_frames(
    mut reader: BoundedLineReader<BufReader<OwnedReadHalf>>,
    open: &Mutex<PendingRequests>,
) -> DisconnectReason {
    loop {
        let said = match reader.next_line().await {
            Ok(Some(line)) => parse_line::<ServerFrame>(line),
            Ok(None) => return DisconnectReason::Lost,
            Err(error) => Err(error),
        };
        let said = match said {
            Ok(said) => said,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return DisconnectReason::Malformed(format!("an answer cannot be read: {error}"));
            }
            Err(_) => return DisconnectReason::Lost,
        };
        if matches!(said.body, ServerFrameBody::ShuttingDown) {
            return DisconnectReason::ShutDown { last_request_id: said.id };
        }
        if let PendingRequests::Active(open) = &*lock_pending(open)
            && let Some(sender) = open.get(&said.id)
        {
            // Whoever asked may have lost interest.
            let _ = sender.send(said.body);
        }
    }
}

async fn write_lines(mut writer: OwnedWriteHalf, mut lines: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        if writer.write_all(&line).await.is_err() {
            return;
        }
    }
}

fn lock_pending(open: &Mutex<PendingRequests>) -> MutexGuard<'_, PendingRequests> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_sandbox_is_not_taken_for_a_daemon_that_is_not_there() {
        let of = |errno: Errno| connect_error(Path::new("/state/socket"), errno.into()).to_string();
        for forbidden in [Errno::PERM, Errno::ACCESS] {
            let said = of(forbidden);
            assert!(said.starts_with("not permitted from here: "), "{said}");
            assert!(said.contains("/state/socket"), "{said}");
        }
        for missing in [Errno::NOENT, Errno::CONNREFUSED] {
            assert!(of(missing).starts_with("no daemon is running: "), "{}", of(missing));
        }
    }
}
