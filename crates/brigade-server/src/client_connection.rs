//! One client, as the daemon serves it.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brigade_model::command::ClientControl;
use brigade_model::ids::{ClientIdentity, ConversationId};
use brigade_model::refusal::Refusal;
use brigade_process::PeerProcess;
use brigade_runtime::PeerOrigin;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admission::{Admission, ConnectionKind};
use crate::bounded_line_reader::BoundedLineReader;
use crate::call::{FlowWindow, ResponseSink};
use crate::conversations::ConversationGuard;
use crate::frames::{
    ClientFrame, ClientRole, HelloFrame, OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, ServerFrame,
    ServerFrameBody, WelcomeFrame, parse_line, write_line,
};
use crate::request_context::{CallerIdentity, DaemonState, RequestContext};
use crate::requests::AnyRequest;

/// Lines on their way to a client that reads slowly.
const FRAME_QUEUE_LEN: usize = 64;
/// Questions that one client may have open.
const OPEN_REQUESTS_MAX: usize = 1_024;
/// Whoever connects says hello within this.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves a client until it goes away or the daemon leaves.
pub(crate) async fn serve_connection(
    shared: Arc<DaemonState>,
    stream: UnixStream,
) -> io::Result<()> {
    if stream.peer_cred()?.uid() != rustix::process::getuid().as_raw() {
        // Another user: nothing is said, not even why.
        return Ok(());
    }
    // A peer that is dead already is nobody.
    let Some(peer) = PeerProcess::from_socket(&stream)? else { return Ok(()) };
    let origin = shared.runtime.origin_of(&peer);
    drop(peer);
    let (reader, mut writer) = stream.into_split();
    let mut reader = BoundedLineReader::new(BufReader::new(reader));
    reader.set_limits(Admission::handshake_limits());
    let greeted = match origin {
        PeerOrigin::Task(id, attempt) => {
            // Whoever has too many is not waited for.
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
    send_welcome(&mut writer, &hello).await?;
    reader.set_limits(shared.admission.line_limits(place.kind()));
    let conversation = match &who {
        CallerIdentity::Client(client) => client.conversation.clone(),
        CallerIdentity::Operator | CallerIdentity::Task { .. } => None,
    };
    let counted = ClientCountGuard::new(&shared, conversation);
    let leaving = shared.shutdown_token.clone();
    let control = match hello.role {
        ClientRole::SharedClient(_) => ClientControl::Shared,
        ClientRole::Operator | ClientRole::Client(_) => ClientControl::Own,
    };
    let mut conversation = ClientConnection::new(
        RequestContext { daemon: shared, caller: who, control },
        counted,
        writer,
    );
    conversation.is_protocol_supported = hello.negotiate_protocol().is_some();
    conversation.run(reader, leaving).await
}

/// Decides as whom a process that belongs to no task acts: only with the operator key.
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
    Ok(match &hello.role {
        ClientRole::Operator => CallerIdentity::Operator,
        ClientRole::Client(name) | ClientRole::SharedClient(name) => {
            let conversation = hello.conversation.as_deref().map(str::parse).transpose()?;
            CallerIdentity::Client(ClientIdentity { name: name.as_str().into(), conversation })
        }
    })
}

/// Reads the first line. None when the client went away, or said something else and was sent away.
async fn read_hello(
    reader: &mut BoundedLineReader<BufReader<OwnedReadHalf>>,
    writer: &mut OwnedWriteHalf,
) -> io::Result<Option<HelloFrame>> {
    let line = match tokio::time::timeout(HELLO_TIMEOUT, reader.next_line()).await {
        Ok(line) => line?,
        Err(_) => None,
    };
    let Some(line) = line else { return Ok(None) };
    match parse_line::<HelloFrame>(line) {
        Ok(hello) => Ok(Some(hello)),
        Err(error) => {
            let refusal = Refusal::invalid(format!("that is not a hello: {error}"));
            send_refusal(writer, refusal).await?;
            Ok(None)
        }
    }
}

async fn send_welcome(writer: &mut OwnedWriteHalf, hello: &HelloFrame) -> io::Result<()> {
    let protocol = hello.negotiate_protocol().unwrap_or(PROTOCOL_VERSION);
    let pid = std::process::id();
    write_line(writer, &WelcomeFrame::Accepted { protocol, version: version(), pid }).await
}

async fn send_refusal(writer: &mut OwnedWriteHalf, refused: Refusal) -> io::Result<()> {
    write_line(writer, &WelcomeFrame::Refused { refused, version: version() }).await
}

fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// The questions that are open.
struct ClientConnection {
    context: RequestContext,
    count_guard: ClientCountGuard,
    /// Whether the client knows a protocol that this daemon knows.
    is_protocol_supported: bool,
    frames: mpsc::Sender<ServerFrame>,
    open_requests: HashMap<u64, OpenRequest>,
    /// The highest number of a question that was read.
    last_request_id: u64,
    handlers: JoinSet<u64>,
    writer_task: tokio::task::JoinHandle<()>,
}

struct OpenRequest {
    cancel: CancellationToken,
    window: Option<Arc<FlowWindow>>,
}

impl ClientConnection {
    fn new(desk: RequestContext, counted: ClientCountGuard, writer: OwnedWriteHalf) -> Self {
        let (lines, waiting) = mpsc::channel(FRAME_QUEUE_LEN);
        #[expect(clippy::disallowed_methods, reason = "ends when the conversation is dropped")]
        let writing = tokio::spawn(write_frames(writer, waiting));
        let (open, answers) = (HashMap::new(), JoinSet::new());
        Self {
            context: desk,
            count_guard: counted,
            is_protocol_supported: true,
            frames: lines,
            open_requests: open,
            last_request_id: 0,
            handlers: answers,
            writer_task: writing,
        }
    }

    async fn run(
        mut self,
        mut reader: BoundedLineReader<BufReader<OwnedReadHalf>>,
        leaving: CancellationToken,
    ) -> io::Result<()> {
        loop {
            tokio::select! {
                line = reader.next_line() => match line? {
                    Some(line) => self.handle_line(line).await,
                    None => return Ok(()),
                },
                Some(answered) = self.handlers.join_next() => {
                    if let Ok(id) = answered {
                        self.open_requests.remove(&id);
                    }
                }
                () = leaving.cancelled() => {
                    self.drain().await;
                    return Ok(());
                }
            }
        }
    }

    async fn handle_line(&mut self, line: &[u8]) {
        let said: ClientFrame<'_> = match serde_json::from_slice(line) {
            Ok(said) => said,
            Err(error) => {
                let refusal = Refusal::invalid(format!("that is not a question: {error}"));
                return self.refuse(0, refusal).await;
            }
        };
        let id = said.id;
        self.last_request_id = self.last_request_id.max(id);
        if said.cancel || said.ack_bytes > 0 {
            if let Some(open) = self.open_requests.get(&id) {
                open.handle_control_frame(&said);
            }
            return;
        }
        let request = said.request.map(|ask| serde_json::from_str::<AnyRequest>(ask.get()));
        let refusal = match request {
            _ if !self.is_protocol_supported && !is_version_independent(&request) => {
                Refusal::unavailable(format!(
                    "this daemon speaks protocol {OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}, the client another"
                ))
            }
            Some(Ok(request)) if self.open_requests.contains_key(&id) => {
                drop(request);
                Refusal::conflict(format!("question {id} is still open"))
            }
            Some(Ok(_)) if self.open_requests.len() >= OPEN_REQUESTS_MAX => {
                Refusal::limit(format!("{OPEN_REQUESTS_MAX} questions are open"))
            }
            Some(Ok(request)) => return self.start_request(id, request, said.window),
            Some(Err(error)) => Refusal::invalid(format!("that cannot be asked: {error}")),
            None => Refusal::invalid("nothing is asked"),
        };
        self.refuse(id, refusal).await;
    }

    fn start_request(&mut self, id: u64, request: AnyRequest, room: Option<u32>) {
        self.count_guard.note_request();
        let cancelled = CancellationToken::new();
        let farewell =
            request.is_long_running().then(|| self.context.daemon.shutdown_token.clone());
        let room = room.map(|size| Arc::new(FlowWindow::new(size)));
        self.open_requests
            .insert(id, OpenRequest { cancel: cancelled.clone(), window: room.clone() });
        let (desk, lines) = (self.context.clone(), self.frames.clone());
        self.handlers.spawn(async move {
            let way = ResponseSink { id, frames: lines.clone(), window: room };
            let answer = tokio::select! {
                biased;
                answer = request.dispatch(&desk, way) => answer,
                () = cancelled.cancelled() => Err(Refusal::unavailable("it was taken back")),
                // Nothing is said: the client finds us gone and asks the next daemon.
                () = wait_for_shutdown(farewell) => return id,
            };
            let what = match answer {
                Ok(done) => ServerFrameBody::Reply(done),
                Err(refusal) => ServerFrameBody::Refused(refusal),
            };
            // A client that is gone does not want to know.
            let _ = lines.send(ServerFrame { id, body: what }).await;
            id
        });
    }

    async fn refuse(&self, id: u64, refusal: Refusal) {
        let _ = self.frames.send(ServerFrame { id, body: ServerFrameBody::Refused(refusal) }).await;
    }

    /// The daemon leaves: what is soon answered still goes out.
    async fn drain(mut self) {
        while self.handlers.join_next().await.is_some() {}
        let _ = self
            .frames
            .send(ServerFrame { id: self.last_request_id, body: ServerFrameBody::ShuttingDown })
            .await;
        drop(self.frames);
        let _ = self.writer_task.await;
    }
}

fn is_version_independent(request: &Option<serde_json::Result<AnyRequest>>) -> bool {
    matches!(request, Some(Ok(request)) if request.is_version_independent())
}

impl OpenRequest {
    fn handle_control_frame(&self, said: &ClientFrame<'_>) {
        if said.cancel {
            self.cancel.cancel();
        }
        if let Some(room) = &self.window {
            room.release(said.ack_bytes);
        }
    }
}

async fn wait_for_shutdown(farewell: Option<CancellationToken>) {
    match farewell {
        Some(leaving) => leaving.cancelled_owned().await,
        None => std::future::pending().await,
    }
}

async fn write_frames(mut writer: OwnedWriteHalf, mut lines: mpsc::Receiver<ServerFrame>) {
    while let Some(line) = lines.recv().await {
        let written = match write_line(&mut writer, &line).await {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                let refusal = Refusal::limit(format!("the answer cannot be sent: {error}"));
                let instead = ServerFrame { id: line.id, body: ServerFrameBody::Refused(refusal) };
                write_line(&mut writer, &instead).await
            }
            written => written,
        };
        if written.is_err() {
            return;
        }
    }
}

/// Counts a client as long as it is here. One that only says that a conversation is there counts as a
/// client from its first question on.
struct ClientCountGuard {
    daemon: Arc<DaemonState>,
    conversation: Option<ConversationGuard>,
    is_presence_only: bool,
}

impl ClientCountGuard {
    fn new(shared: &Arc<DaemonState>, conversation: Option<ConversationId>) -> Self {
        let conversation = conversation.map(|id| shared.conversations.connect(id));
        let attends = conversation.is_some();
        let counted = Self { daemon: shared.clone(), conversation, is_presence_only: attends };
        counted.counter().fetch_add(1, Ordering::Relaxed);
        counted
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
