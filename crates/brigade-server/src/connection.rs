//! One client, as the daemon serves it.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brigade_model::command::ClientControl;
use brigade_model::ids::Attempt;
use brigade_model::refusal::Refusal;
use brigade_process::machine::parent_of;
use brigade_runtime::TaskId;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::ask::{Room, Way};
use crate::desk::{Desk, Shared, Who};
use crate::requests::Request;
use crate::wire::{
    As, FromClient, FromDaemon, Hello, Lines, OLDEST_SERVED, PROTOCOL, Said, Welcome, parse,
    write_line,
};

/// Lines on their way to a client that reads slowly.
const LINES: usize = 64;
/// Questions that one client may have open.
const OPEN_MAX: usize = 1_024;
/// How often it is looked for the task of a process that must have one, every two milliseconds.
const NOTED_WITHIN: usize = 100;
/// How far up it is looked.
const ANCESTORS_MAX: usize = 256;
/// Whoever connects says hello within this.
const HELLO_WITHIN: Duration = Duration::from_secs(30);

/// Serves a client until it goes away or the daemon leaves.
pub(crate) async fn serve(shared: Arc<Shared>, stream: UnixStream) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    if peer.uid() != rustix::process::getuid().as_raw() {
        // Another user: nothing is said, not even why.
        return Ok(());
    }
    let acting = match peer.pid() {
        Some(pid) => acting(&shared, pid.unsigned_abs()).await,
        None => Acting::Itself,
    };
    let (reader, mut writer) = stream.into_split();
    let mut reader = Lines::new(BufReader::new(reader));
    let Some(hello) = greet(&mut reader, &mut writer).await? else { return Ok(()) };
    let is_understood = hello.common().is_some();
    let control = match hello.who {
        As::SharedClient(_) => ClientControl::Shared,
        As::Operator | As::Client(_) => ClientControl::Own,
    };
    let who = match acting {
        Acting::Task(id, attempt) => Who::Task { id, attempt },
        Acting::Itself => match hello.who {
            As::Operator => Who::Operator,
            As::Client(name) | As::SharedClient(name) => Who::Client(name),
        },
        // It is told nothing: whoever it belonged to has ended.
        Acting::Nobody => return Ok(()),
    };
    let _counted = Counted::new(&shared);
    let leaving = shared.leaving.clone();
    let mut conversation = Conversation::new(Desk { shared, who, control }, writer);
    conversation.is_understood = is_understood;
    conversation.run(reader, leaving).await
}

/// As whom a process may act.
enum Acting {
    Itself,
    Task(TaskId, Attempt),
    /// It came of a command that is not known, or not any more.
    Nobody,
}

/// A shim that was started this moment may not be noted yet, and what its command starts must not
/// pass for the operator meanwhile. Such a process has this one above it, unless it is gone.
async fn acting(shared: &Shared, pid: u32) -> Acting {
    if pid == std::process::id() {
        // A program that is the daemon and its client.
        return Acting::Itself;
    }
    for _ in 0..NOTED_WITHIN {
        if let Some((id, attempt)) = shared.runtime.task_above(pid) {
            return Acting::Task(id, attempt);
        }
        if !brigade_process::IS_COMPLETE || is_elsewhere(pid) {
            return Acting::Itself;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Acting::Nobody
}

/// Whether the whole line above a process is known and this one is not in it. A process that is gone,
/// or lost a parent while it was looked at, may have come of a command.
fn is_elsewhere(pid: u32) -> bool {
    let mut last = pid;
    for pid in std::iter::successors(Some(pid), |pid| parent_of(*pid)).take(ANCESTORS_MAX) {
        if pid == std::process::id() {
            return false;
        }
        last = pid;
    }
    parent_of(last).is_none() && std::path::Path::new("/proc").join(last.to_string()).exists()
}

/// None when the client was sent away.
async fn greet(
    reader: &mut Lines<BufReader<OwnedReadHalf>>,
    writer: &mut OwnedWriteHalf,
) -> io::Result<Option<Hello>> {
    let line = match tokio::time::timeout(HELLO_WITHIN, reader.next()).await {
        Ok(line) => line?,
        Err(_) => None,
    };
    let Some(line) = line else { return Ok(None) };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let refused = match parse::<Hello>(line) {
        Ok(hello) => {
            let protocol = hello.common().unwrap_or(PROTOCOL);
            let pid = std::process::id();
            write_line(writer, &Welcome::Welcome { protocol, version, pid }).await?;
            return Ok(Some(hello));
        }
        Err(error) => Refusal::invalid(format!("that is not a hello: {error}")),
    };
    write_line(writer, &Welcome::Refused { refused, version }).await?;
    Ok(None)
}

/// The questions that are open.
struct Conversation {
    desk: Desk,
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
    fn new(desk: Desk, writer: OwnedWriteHalf) -> Self {
        let (lines, waiting) = mpsc::channel(LINES);
        #[expect(clippy::disallowed_methods, reason = "ends when the conversation is dropped")]
        let writing = tokio::spawn(write_all(writer, waiting));
        let (open, answers) = (HashMap::new(), JoinSet::new());
        Self { desk, is_understood: true, lines, open, heard: 0, answers, writing }
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

/// Counts a client as long as it is here.
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.clients.fetch_add(1, Ordering::Relaxed);
        Self(shared.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_that_is_known_whole_is_from_elsewhere() {
        let parent = parent_of(std::process::id()).expect("whoever runs the tests");
        assert!(is_elsewhere(parent));
        let mut below = std::process::Command::new("sleep").arg("60").spawn().expect("a child");
        assert!(!is_elsewhere(below.id()), "it is below this process");
        below.kill().and_then(|()| below.wait()).expect("gone");
        assert!(!is_elsewhere(below.id()), "whose it was cannot be told any more");
    }
}
