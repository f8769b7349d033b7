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
use crate::ask::{Room, Way};
use crate::conversations::ConversationGuard;
use crate::desk::{Desk, Shared, Who};
use crate::lines::Lines;
use crate::requests::Request;
use crate::wire::{
    As, FromClient, FromDaemon, Hello, OLDEST_SERVED, PROTOCOL, Said, Welcome, parse, write_line,
};

/// Lines on their way to a client that reads slowly.
const LINES: usize = 64;
/// Questions that one client may have open.
const OPEN_MAX: usize = 1_024;
/// Whoever connects says hello within this.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// Serves a client until it goes away or the daemon leaves.
pub(crate) async fn serve(shared: Arc<Shared>, stream: UnixStream) -> io::Result<()> {
    if stream.peer_cred()?.uid() != rustix::process::getuid().as_raw() {
        // Another user: nothing is said, not even why.
        return Ok(());
    }
    // A peer that is dead already is nobody.
    let Some(peer) = PeerProcess::of(&stream)? else { return Ok(()) };
    let origin = shared.runtime.origin_of(&peer);
    drop(peer);
    let (reader, mut writer) = stream.into_split();
    let mut reader = Lines::new(BufReader::new(reader));
    reader.set_bounds(Admission::handshake_bounds());
    let greeted = match origin {
        PeerOrigin::Task(id, attempt) => {
            // Whoever has too many is not waited for.
            let place = match shared.admission.admit(ConnectionKind::Task(id)) {
                Ok(place) => place,
                Err(refusal) => return send_away(&mut writer, refusal).await,
            };
            let Some(hello) = read_hello(&mut reader, &mut writer).await? else { return Ok(()) };
            Ok((hello, place, Who::Task { id, attempt }))
        }
        PeerOrigin::Outside | PeerOrigin::Unknown => {
            let pending = shared.admission.admit_pending();
            let hello = tokio::select! {
                hello = read_hello(&mut reader, &mut writer) => hello?,
                () = pending.ended.cancelled() => return Ok(()),
            };
            let Some(hello) = hello else { return Ok(()) };
            let who = identify(&shared, origin, &hello);
            who.and_then(|who| Ok((hello, shared.admission.admit(ConnectionKind::Operator)?, who)))
        }
    };
    let (hello, place, who) = match greeted {
        Ok(greeted) => greeted,
        Err(refusal) => return send_away(&mut writer, refusal).await,
    };
    welcome(&mut writer, &hello).await?;
    reader.set_bounds(shared.admission.line_bounds(place.kind()));
    let conversation = match &who {
        Who::Client(client) => client.conversation.clone(),
        Who::Operator | Who::Task { .. } => None,
    };
    let counted = Counted::new(&shared, conversation);
    let leaving = shared.leaving.clone();
    let control = match hello.who {
        As::SharedClient(_) => ClientControl::Shared,
        As::Operator | As::Client(_) => ClientControl::Own,
    };
    let mut conversation = Conversation::new(Desk { shared, who, control }, counted, writer);
    conversation.is_understood = hello.common().is_some();
    conversation.run(reader, leaving).await
}

/// Decides as whom a process that belongs to no task acts: only with the operator key.
fn identify(shared: &Shared, origin: PeerOrigin, hello: &Hello) -> Result<Who, Refusal> {
    if origin == PeerOrigin::Unknown {
        let text = "this process is not known: it runs below the daemon and no task, or its parents \
                    ended while they were looked up; try again";
        return Err(Refusal::forbidden(text));
    }
    let shown = hello.operator_key.as_ref();
    if !shown.is_some_and(|shown| shared.operator_key.matches(shown)) {
        let path = shared.places.operator_key();
        let problem = if shown.is_some() { "is another one" } else { "is missing" };
        let text = format!("the operator key {problem}: it is in {}", path.display());
        return Err(Refusal::forbidden(text));
    }
    Ok(match &hello.who {
        As::Operator => Who::Operator,
        As::Client(name) | As::SharedClient(name) => {
            let conversation = hello.conversation.as_deref().map(str::parse).transpose()?;
            Who::Client(ClientIdentity { name: name.as_str().into(), conversation })
        }
    })
}

/// Reads the first line. None when the client went away, or said something else and was sent away.
async fn read_hello(
    reader: &mut Lines<BufReader<OwnedReadHalf>>,
    writer: &mut OwnedWriteHalf,
) -> io::Result<Option<Hello>> {
    let line = match tokio::time::timeout(HELLO_WITHIN, reader.next()).await {
        Ok(line) => line?,
        Err(_) => None,
    };
    let Some(line) = line else { return Ok(None) };
    match parse::<Hello>(line) {
        Ok(hello) => Ok(Some(hello)),
        Err(error) => {
            let refusal = Refusal::invalid(format!("that is not a hello: {error}"));
            send_away(writer, refusal).await?;
            Ok(None)
        }
    }
}

async fn welcome(writer: &mut OwnedWriteHalf, hello: &Hello) -> io::Result<()> {
    let protocol = hello.common().unwrap_or(PROTOCOL);
    let pid = std::process::id();
    write_line(writer, &Welcome::Welcome { protocol, version: version(), pid }).await
}

async fn send_away(writer: &mut OwnedWriteHalf, refused: Refusal) -> io::Result<()> {
    write_line(writer, &Welcome::Refused { refused, version: version() }).await
}

fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// The questions that are open.
struct Conversation {
    desk: Desk,
    counted: Counted,
    /// Whether the client knows a protocol that this daemon knows.
    is_understood: bool,
    lines: mpsc::Sender<FromDaemon>,
    open: HashMap<u64, Open>,
    /// The highest number of a question that was read.
    heard: u64,
    answers: JoinSet<u64>,
    writing: tokio::task::JoinHandle<()>,
}

struct Open {
    cancel: CancellationToken,
    room: Option<Arc<Room>>,
}

impl Conversation {
    fn new(desk: Desk, counted: Counted, writer: OwnedWriteHalf) -> Self {
        let (lines, waiting) = mpsc::channel(LINES);
        #[expect(clippy::disallowed_methods, reason = "ends when the conversation is dropped")]
        let writing = tokio::spawn(write_all(writer, waiting));
        let (open, answers) = (HashMap::new(), JoinSet::new());
        Self { desk, counted, is_understood: true, lines, open, heard: 0, answers, writing }
    }

    async fn run(
        mut self,
        mut reader: Lines<BufReader<OwnedReadHalf>>,
        leaving: CancellationToken,
    ) -> io::Result<()> {
        loop {
            tokio::select! {
                line = reader.next() => match line? {
                    Some(line) => self.heard(line).await,
                    None => return Ok(()),
                },
                Some(answered) = self.answers.join_next() => {
                    if let Ok(id) = answered {
                        self.open.remove(&id);
                    }
                }
                () = leaving.cancelled() => {
                    self.finish().await;
                    return Ok(());
                }
            }
        }
    }

    async fn heard(&mut self, line: &[u8]) {
        let said: FromClient<'_> = match serde_json::from_slice(line) {
            Ok(said) => said,
            Err(error) => {
                let refusal = Refusal::invalid(format!("that is not a question: {error}"));
                return self.refuse(0, refusal).await;
            }
        };
        let id = said.id;
        self.heard = self.heard.max(id);
        if said.cancel || said.more > 0 {
            if let Some(open) = self.open.get(&id) {
                open.heard(&said);
            }
            return;
        }
        let request = said.ask.map(|ask| serde_json::from_str::<Request>(ask.get()));
        let refusal = match request {
            _ if !self.is_understood && !is_of_all_versions(&request) => {
                Refusal::unavailable(format!(
                    "this daemon speaks protocol {OLDEST_SERVED} to {PROTOCOL}, the client another"
                ))
            }
            Some(Ok(request)) if self.open.contains_key(&id) => {
                drop(request);
                Refusal::conflict(format!("question {id} is still open"))
            }
            Some(Ok(_)) if self.open.len() >= OPEN_MAX => {
                Refusal::limit(format!("{OPEN_MAX} questions are open"))
            }
            Some(Ok(request)) => return self.ask(id, request, said.room),
            Some(Err(error)) => Refusal::invalid(format!("that cannot be asked: {error}")),
            None => Refusal::invalid("nothing is asked"),
        };
        self.refuse(id, refusal).await;
    }

    fn ask(&mut self, id: u64, request: Request, room: Option<u32>) {
        self.counted.asks();
        let cancelled = CancellationToken::new();
        let farewell = request.lasts().then(|| self.desk.shared.leaving.clone());
        let room = room.map(|size| Arc::new(Room::new(size)));
        self.open.insert(id, Open { cancel: cancelled.clone(), room: room.clone() });
        let (desk, lines) = (self.desk.clone(), self.lines.clone());
        self.answers.spawn(async move {
            let way = Way { id, lines: lines.clone(), room };
            let answer = tokio::select! {
                biased;
                answer = request.answer(&desk, way) => answer,
                () = cancelled.cancelled() => Err(Refusal::unavailable("it was taken back")),
                // Nothing is said: the client finds us gone and asks the next daemon.
                () = left(farewell) => return id,
            };
            let what = match answer {
                Ok(done) => Said::Done(done),
                Err(refusal) => Said::Refused(refusal),
            };
            // A client that is gone does not want to know.
            let _ = lines.send(FromDaemon { id, what }).await;
            id
        });
    }

    async fn refuse(&self, id: u64, refusal: Refusal) {
        let _ = self.lines.send(FromDaemon { id, what: Said::Refused(refusal) }).await;
    }

    /// The daemon leaves: what is soon answered still goes out.
    async fn finish(mut self) {
        while self.answers.join_next().await.is_some() {}
        let _ = self.lines.send(FromDaemon { id: self.heard, what: Said::Leaving }).await;
        drop(self.lines);
        let _ = self.writing.await;
    }
}

fn is_of_all_versions(request: &Option<serde_json::Result<Request>>) -> bool {
    matches!(request, Some(Ok(request)) if request.is_of_all_versions())
}

impl Open {
    fn heard(&self, said: &FromClient<'_>) {
        if said.cancel {
            self.cancel.cancel();
        }
        if let Some(room) = &self.room {
            room.give_back(said.more);
        }
    }
}

async fn left(farewell: Option<CancellationToken>) {
    match farewell {
        Some(leaving) => leaving.cancelled_owned().await,
        None => std::future::pending().await,
    }
}

async fn write_all(mut writer: OwnedWriteHalf, mut lines: mpsc::Receiver<FromDaemon>) {
    while let Some(line) = lines.recv().await {
        let written = match write_line(&mut writer, &line).await {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                let refusal = Refusal::limit(format!("the answer cannot be sent: {error}"));
                let instead = FromDaemon { id: line.id, what: Said::Refused(refusal) };
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
struct Counted {
    shared: Arc<Shared>,
    conversation: Option<ConversationGuard>,
    attends: bool,
}

impl Counted {
    fn new(shared: &Arc<Shared>, conversation: Option<ConversationId>) -> Self {
        let conversation = conversation.map(|id| shared.conversations.enter(id));
        let attends = conversation.is_some();
        let counted = Self { shared: shared.clone(), conversation, attends };
        counted.count().fetch_add(1, Ordering::Relaxed);
        counted
    }

    fn count(&self) -> &AtomicUsize {
        if self.attends { &self.shared.attending } else { &self.shared.clients }
    }

    fn asks(&mut self) {
        if self.attends {
            self.shared.clients.fetch_add(1, Ordering::Relaxed);
            self.shared.attending.fetch_sub(1, Ordering::Relaxed);
            self.attends = false;
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.conversation.take();
        self.count().fetch_sub(1, Ordering::Relaxed);
    }
}
