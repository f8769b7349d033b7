//! One connection of a client, on the daemon's side.

use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brigade_model::command::ClientControl;
use brigade_model::event_author::CallerOrigin;
use brigade_model::ids::{ClientIdentity, ConversationId};
use brigade_model::refusal::Refusal;
use brigade_process::PeerProcess;
use brigade_runtime::PeerOrigin;
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admission::{Admission, ConnectionKind, ConnectionPermit};
use crate::conversations::ConversationGuard;
use crate::http::open_requests::FINISH_TIMEOUT;
use crate::request_context::{CallerIdentity, DaemonState, RequestContext};
use crate::request_handler::ResponseSink;
use crate::requests::dispatch;
use brigade_protocol::bounded_line_reader::BoundedLineReader;
use brigade_protocol::flow_window::FlowWindow;
use brigade_protocol::frames::{
    ClientFrame, ClientRole, HelloFrame, OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, ServerFrame,
    ServerFrameBody, WelcomeFrame, parse_line, write_line,
};
use brigade_protocol::requests::AnyRequest;

/// The frames that are queued for a client that reads slowly.
const FRAME_QUEUE_LEN: usize = 64;
/// The maximum number of open requests of one client.
const OPEN_REQUESTS_MAX: usize = 1_024;
/// The time from the connection to the hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The end of a connection whose daemon shuts down, which takes no longer than two seconds.
const SHUTDOWN_DRAIN: DrainTimeouts =
    DrainTimeouts { replies: Duration::from_millis(1_700), last_frame: Duration::from_millis(200) };
/// The end of a connection whose token has ended.
const REVOKED_DRAIN: DrainTimeouts =
    DrainTimeouts { replies: FINISH_TIMEOUT, last_frame: Duration::from_secs(10) };

/// Serves a client until it disconnects or the daemon shuts down.
pub(crate) async fn serve_connection(
    shared: Arc<DaemonState>,
    stream: UnixStream,
) -> io::Result<()> {
    if stream.peer_cred()?.uid() != rustix::process::getuid().as_raw() {
        // Another user gets no reply, not even a reason.
        return Ok(());
    }
    // A dead peer has no identity.
    let Some(peer) = PeerProcess::from_socket(&stream)? else { return Ok(()) };
    let origin = shared.runtime.origin_of(&peer);
    let caller_origin = peer.describe().map(CallerOrigin::from);
    drop(peer);
    let (reader, mut writer) = stream.into_split();
    let mut reader = BoundedLineReader::new(BufReader::new(reader));
    reader.set_limits(Admission::handshake_limits());
    let greeted = match origin {
        PeerOrigin::Task(id, attempt) => {
            // Refuse a task that has too many connections before its hello.
            let place = match shared.admission.admit(ConnectionKind::Task(id)) {
                Ok(place) => place,
                Err(refusal) => return send_refusal(&mut writer, refusal).await,
            };
            let Some(hello) = read_hello(&mut reader, &mut writer).await? else { return Ok(()) };
            Ok((hello, place, CallerIdentity::Task { id, attempt }))
        }
        PeerOrigin::Outside | PeerOrigin::Unknown => {
            let pending = shared.admission.admit_pending();
            let hello = tokio::select! {
                hello = read_hello(&mut reader, &mut writer) => hello?,
                () = pending.evicted.cancelled() => return Ok(()),
            };
            let Some(hello) = hello else { return Ok(()) };
            let who = identify(&shared, origin, &hello);
            who.and_then(|who| Ok((hello, shared.admission.admit(ConnectionKind::Operator)?, who)))
        }
    };
    let (hello, place, who) = match greeted {
        Ok(greeted) => greeted,
        Err(refusal) => return send_refusal(&mut writer, refusal).await,
    };
    let context = RequestContext {
        daemon: shared,
        caller: who,
        origin: caller_origin,
        control: control_of(&hello.role),
        path_session: None,
        session_scope: None,
        validity: None,
    };
    let client = GreetedClient { context, hello, place };
    // The operator key cannot be revoked.
    client.serve(reader, writer, std::future::pending()).await
}

/// A client that was identified and admitted.
pub(crate) struct GreetedClient {
    pub(crate) context: RequestContext,
    pub(crate) hello: HelloFrame,
    pub(crate) place: ConnectionPermit,
}

impl GreetedClient {
    /// Serves the client until it disconnects, its identity ends, or the daemon shuts down.
    pub(crate) async fn serve<R, W>(
        self,
        mut reader: BoundedLineReader<R>,
        mut writer: W,
        identity_ended: impl Future<Output = ()>,
    ) -> io::Result<()>
    where
        R: AsyncBufRead + Unpin,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let Self { context, hello, place } = self;
        send_welcome(&mut writer, &hello).await?;
        reader.set_limits(context.daemon.admission.line_limits(place.kind()));
        let conversation = match &context.caller {
            CallerIdentity::Client(client) => client.conversation.clone(),
            CallerIdentity::Operator | CallerIdentity::Task { .. } => None,
        };
        let counted = ClientCountGuard::new(&context.daemon, conversation);
        let mut connection = ClientConnection::new(context, counted, writer);
        connection.is_protocol_supported = hello.negotiate_protocol().is_some();
        connection.run(reader, identity_ended).await
    }
}

/// Returns the tasks that a client of this role controls.
pub(crate) fn control_of(role: &ClientRole) -> ClientControl {
    match role {
        ClientRole::SharedClient(_) => ClientControl::Shared,
        ClientRole::Operator | ClientRole::Client(_) => ClientControl::Own,
    }
}

/// Identifies a process that belongs to no task. It needs the operator key.
fn identify(
    shared: &DaemonState,
    origin: PeerOrigin,
    hello: &HelloFrame,
) -> Result<CallerIdentity, Refusal> {
    if origin == PeerOrigin::Unknown {
        let text = "this process is not known: it runs below the daemon and no task, or its parents \
                    ended while they were looked up; try again";
        return Err(Refusal::forbidden(text));
    }
    let shown = hello.operator_key.as_ref();
    if !shown.is_some_and(|shown| shared.operator_key.matches(shown)) {
        let path = shared.state_dir.operator_key_path();
        let problem = if shown.is_some() { "is another one" } else { "is missing" };
        let text = format!("the operator key {problem}: it is in {}", path.display());
        return Err(Refusal::forbidden(text));
    }
    identify_role(hello)
}

/// Returns the identity that a caller with the operator's rights asks for.
pub(crate) fn identify_role(hello: &HelloFrame) -> Result<CallerIdentity, Refusal> {
    Ok(match &hello.role {
        ClientRole::Operator => CallerIdentity::Operator,
        ClientRole::Client(name) | ClientRole::SharedClient(name) => {
            let conversation = hello.conversation.as_deref().map(str::parse).transpose()?;
            CallerIdentity::Client(ClientIdentity { name: name.as_str().into(), conversation })
        }
    })
}

/// Reads the hello; `None` if the client disconnected, timed out, or sent something else.
pub(crate) async fn read_hello<R, W>(
    reader: &mut BoundedLineReader<R>,
    writer: &mut W,
) -> io::Result<Option<HelloFrame>>
where
    R: AsyncBufRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let line = match tokio::time::timeout(HELLO_TIMEOUT, reader.next_line()).await {
        Ok(line) => line?,
        Err(_) => None,
    };
    let Some(line) = line else { return Ok(None) };
    match parse_line::<HelloFrame>(line) {
        Ok(hello) => Ok(Some(hello)),
        Err(error) => {
            let refusal = Refusal::invalid(format!("not a hello frame: {error}"));
            send_refusal(writer, refusal).await?;
            Ok(None)
        }
    }
}

async fn send_welcome<W>(writer: &mut W, hello: &HelloFrame) -> io::Result<()>
where
    W: AsyncWrite + Unpin,
{
    let protocol = hello.negotiate_protocol().unwrap_or(PROTOCOL_VERSION);
    let pid = std::process::id();
    write_line(writer, &WelcomeFrame::Accepted { protocol, version: version(), pid }).await
}

/// Refuses a client instead of a welcome.
pub(crate) async fn send_refusal<W>(writer: &mut W, refused: Refusal) -> io::Result<()>
where
    W: AsyncWrite + Unpin,
{
    let protocol = Some(PROTOCOL_VERSION);
    write_line(writer, &WelcomeFrame::Refused { refused, version: version(), protocol }).await
}

fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// A connection after the handshake, with its open requests.
struct ClientConnection {
    context: RequestContext,
    count_guard: ClientCountGuard,
    /// The client and this daemon have a protocol in common.
    is_protocol_supported: bool,
    frames: mpsc::Sender<ServerFrame>,
    open_requests: HashMap<u64, OpenRequest>,
    /// The highest id of a request that was read.
    last_request_id: u64,
    handlers: JoinSet<u64>,
    writer_task: tokio::task::JoinHandle<()>,
}

/// The time for the end of a connection.
#[derive(Clone, Copy, Debug)]
struct DrainTimeouts {
    /// For the replies of requests that have begun.
    replies: Duration,
    /// For the client to read them and the last frame.
    last_frame: Duration,
}

struct OpenRequest {
    cancel: CancellationToken,
    window: Option<Arc<FlowWindow>>,
}

impl ClientConnection {
    fn new<W>(context: RequestContext, count_guard: ClientCountGuard, writer: W) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (frames, queue) = mpsc::channel(FRAME_QUEUE_LEN);
        #[expect(clippy::disallowed_methods, reason = "ends when the connection is dropped")]
        let writer_task = tokio::spawn(write_frames(writer, queue));
        Self {
            context,
            count_guard,
            is_protocol_supported: true,
            frames,
            open_requests: HashMap::new(),
            last_request_id: 0,
            handlers: JoinSet::new(),
            writer_task,
        }
    }

    async fn run<R: AsyncBufRead + Unpin>(
        mut self,
        mut reader: BoundedLineReader<R>,
        identity_ended: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let shutdown_token = self.context.daemon.shutdown.shutdown_token.clone();
        let mut identity_ended = pin!(identity_ended);
        loop {
            tokio::select! {
                // No request is read after the end of the identity.
                biased;
                () = &mut identity_ended => {
                    self.drain(REVOKED_DRAIN).await;
                    return Ok(());
                }
                () = shutdown_token.cancelled() => {
                    self.drain(SHUTDOWN_DRAIN).await;
                    return Ok(());
                }
                // The client has disconnected, or has read nothing for too long.
                () = self.frames.closed() => return Ok(()),
                Some(handled) = self.handlers.join_next() => {
                    if let Ok(id) = handled {
                        self.open_requests.remove(&id);
                    }
                }
                line = reader.next_line() => match line? {
                    Some(line) => self.handle_line(line).await,
                    None => return Ok(()),
                },
            }
        }
    }

    async fn handle_line(&mut self, line: &[u8]) {
        let frame: ClientFrame<'_> = match serde_json::from_slice(line) {
            Ok(frame) => frame,
            Err(error) => {
                let refusal = Refusal::invalid(format!("not a request frame: {error}"));
                return self.refuse(0, refusal).await;
            }
        };
        let id = frame.id;
        self.last_request_id = self.last_request_id.max(id);
        if frame.cancel || frame.ack_bytes > 0 {
            if let Some(open) = self.open_requests.get(&id) {
                open.handle_control_frame(&frame);
            }
            return;
        }
        let request = frame.request.map(|raw| serde_json::from_str::<AnyRequest>(raw.get()));
        let refusal = match request {
            _ if !self.is_protocol_supported && !is_version_independent(&request) => {
                Refusal::unavailable(format!(
                    "this daemon speaks protocol {OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}, the client another"
                ))
            }
            Some(Ok(request)) if self.open_requests.contains_key(&id) => {
                drop(request);
                Refusal::conflict(format!("request {id} is still open"))
            }
            Some(Ok(_)) if self.open_requests.len() >= OPEN_REQUESTS_MAX => {
                Refusal::limit(format!("{OPEN_REQUESTS_MAX} requests are open"))
            }
            Some(Ok(request)) => return self.start_request(id, request, frame.window),
            Some(Err(error)) => Refusal::invalid(format!("unknown or invalid request: {error}")),
            None => Refusal::invalid("the frame has no request"),
        };
        self.refuse(id, refusal).await;
    }

    fn start_request(&mut self, id: u64, request: AnyRequest, window: Option<u32>) {
        self.count_guard.note_request();
        let cancel = CancellationToken::new();
        let end = ReplyEnd::of(&request);
        let window = window.map(|bytes| Arc::new(FlowWindow::new(bytes)));
        let open = OpenRequest { cancel: cancel.clone(), window: window.clone() };
        self.open_requests.insert(id, open);
        let context = self.context.clone();
        let frames = self.frames.clone();
        self.handlers.spawn(async move {
            let sink = ResponseSink { id, frames: frames.clone(), window };
            let result = tokio::select! {
                biased;
                result = dispatch(request, &context, sink) => result,
                () = cancel.cancelled() => Err(Refusal::unavailable("the request was cancelled")),
                // Send no frame: the client sees the disconnect and repeats the request.
                () = end.wait(&context) => return id,
            };
            if end == ReplyEnd::Wait && result.is_err() && context.token_has_ended() {
                // The end of the token has cancelled the wait.
                return id;
            }
            let body = match result {
                Ok(reply) => ServerFrameBody::Reply(reply),
                Err(refusal) => ServerFrameBody::Refused(refusal),
            };
            // Sending fails only if the client has disconnected.
            let _ = frames.send(ServerFrame { id, body }).await;
            id
        });
    }

    async fn refuse(&self, id: u64, refusal: Refusal) {
        let _ = self.frames.send(ServerFrame { id, body: ServerFrameBody::Refused(refusal) }).await;
    }

    /// Sends the replies that are ready in time, and the last frame.
    async fn drain(mut self, timeouts: DrainTimeouts) {
        let drained = async { while self.handlers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(timeouts.replies, drained).await;
        // A handler that is not done may have changed something. Its client is not told.
        self.handlers.shutdown().await;
        let last = ServerFrame { id: self.last_request_id, body: ServerFrameBody::ShuttingDown };
        let written = async {
            let _ = self.frames.send(last).await;
            drop(self.frames);
            let _ = self.writer_task.await;
        };
        let _ = tokio::time::timeout(timeouts.last_frame, written).await;
    }
}

fn is_version_independent(request: &Option<serde_json::Result<AnyRequest>>) -> bool {
    matches!(request, Some(Ok(request)) if request.is_version_independent())
}

impl OpenRequest {
    fn handle_control_frame(&self, frame: &ClientFrame<'_>) {
        if frame.cancel {
            self.cancel.cancel();
        }
        if let Some(window) = &self.window {
            window.release(frame.ack_bytes);
        }
    }
}

/// The event after which a request gets no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyEnd {
    /// The reply comes soon.
    Never,
    /// A wait ends with the daemon. The end of the token cancels it by itself, unless it is
    /// collecting results: then only the reply has them.
    Wait,
    /// A stream ends with the daemon, or with the token.
    Stream,
}

impl ReplyEnd {
    fn of(request: &AnyRequest) -> Self {
        match request {
            AnyRequest::Wait(_) => Self::Wait,
            request if request.is_long_running() => Self::Stream,
            _ => Self::Never,
        }
    }

    async fn wait(self, context: &RequestContext) {
        let shutdown_token = &context.daemon.shutdown.shutdown_token;
        match self {
            Self::Never => std::future::pending().await,
            Self::Wait => shutdown_token.cancelled().await,
            Self::Stream => tokio::select! {
                () = shutdown_token.cancelled() => {}
                () = context.token_ended() => {}
            },
        }
    }
}

async fn write_frames<W>(mut writer: W, mut frames: mpsc::Receiver<ServerFrame>)
where
    W: AsyncWrite + Unpin,
{
    while let Some(frame) = frames.recv().await {
        let written = match write_line(&mut writer, &frame).await {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                let refusal = Refusal::limit(format!("the reply cannot be sent: {error}"));
                let instead = ServerFrame { id: frame.id, body: ServerFrameBody::Refused(refusal) };
                write_line(&mut writer, &instead).await
            }
            written => written,
        };
        if written.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await;
}

/// Counts a client until it disconnects. A connection with a conversation signals only its presence
/// until its first request; then it counts as a client.
struct ClientCountGuard {
    daemon: Arc<DaemonState>,
    conversation: Option<ConversationGuard>,
    is_presence_only: bool,
}

impl ClientCountGuard {
    fn new(shared: &Arc<DaemonState>, conversation: Option<ConversationId>) -> Self {
        let conversation = conversation.map(|id| shared.conversations.connect(id));
        let is_presence_only = conversation.is_some();
        let guard = Self { daemon: shared.clone(), conversation, is_presence_only };
        guard.counter().fetch_add(1, Ordering::Relaxed);
        guard
    }

    fn counter(&self) -> &AtomicUsize {
        if self.is_presence_only { &self.daemon.presence_count } else { &self.daemon.client_count }
    }

    fn note_request(&mut self) {
        if self.is_presence_only {
            self.daemon.client_count.fetch_add(1, Ordering::Relaxed);
            self.daemon.presence_count.fetch_sub(1, Ordering::Relaxed);
            self.is_presence_only = false;
        }
    }
}

impl Drop for ClientCountGuard {
    fn drop(&mut self) {
        self.conversation.take();
        self.counter().fetch_sub(1, Ordering::Relaxed);
    }
}
