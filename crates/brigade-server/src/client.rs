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

use crate::ask::Ask;
use crate::daemon_lock::{DaemonPhase, LockHolder};
use crate::lines::Lines;
use crate::operator_key::OperatorKey;
use crate::places::{Places, Short};
use crate::requests::Request;
use crate::wire::{
    Asked, Cancel, FromDaemon, Hello, Introduction, More, OLDEST_SERVED, PROTOCOL, Said, Welcome,
    cost, is_spoken, line, parse, write_line,
};

/// Bytes of one question's items that may be here or on their way, not yet taken.
const ROOM: u32 = 1024 * 1024;
/// When so much was taken the daemon is told, at the latest.
const TELL_AFTER: u32 = ROOM / 4;

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
    #[error("{}", unreachable(*holder, socket))]
    Unreachable { holder: LockHolder, socket: PathBuf },
    /// There may be one, and this process may not speak with it.
    #[error("not permitted from here: {0}")]
    NotPermitted(io::Error),
    /// It may have happened. With a key it can be asked again.
    #[error("the daemon went away before it answered")]
    Lost,
    /// It did not happen. It can be asked of the next daemon.
    #[error("the daemon was leaving and did not hear the question")]
    Unheard,
    #[error("the daemon is version {daemon}, this is {client}: {problem}", client = env!("CARGO_PKG_VERSION"))]
    OtherVersion { daemon: String, problem: String },
    #[error("the daemon said something else than it should: {0}")]
    Garbled(String),
}

/// Says who holds the folder and what to do about it.
fn unreachable(holder: LockHolder, socket: &Path) -> String {
    let name = match holder.pid {
        Some(pid) => format!("the daemon (pid {pid})"),
        None => "a daemon".to_owned(),
    };
    let end = holder.pid.map_or_else(|| "end it".to_owned(), |pid| format!("`kill {pid}`"));
    match holder.phase {
        Some(DaemonPhase::Starting) => {
            format!("{name} is still starting; try again, and daemon.log says how far it is")
        }
        Some(DaemonPhase::Leaving) => format!("{name} is still leaving; try again in a moment"),
        Some(DaemonPhase::Serving) | None => format!(
            "{name} runs, but nobody listens at {}: the socket was removed, or the daemon hangs. Try again; if \
             that does not help, {end}: processes go on, and the next command starts another daemon",
            socket.display()
        ),
    }
}

/// A connection. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    daemon: Met,
    next: AtomicU64,
    lines: mpsc::UnboundedSender<Vec<u8>>,
    open: Arc<Mutex<Open>>,
    _hang_up: DropGuard,
}

/// The daemon on the other side.
#[derive(Debug)]
struct Met {
    protocol: u32,
    version: String,
    pid: u32,
}

/// Who waits for what.
#[derive(Debug)]
enum Open {
    Speaking(HashMap<u64, mpsc::UnboundedSender<Said>>),
    Over(End),
}

/// How a conversation came to its end.
#[derive(Debug)]
enum End {
    Lost,
    /// The daemon said that it leaves. This is the last question that it heard.
    Left {
        heard: u64,
    },
    /// What it said cannot be understood.
    Garbled(String),
}

impl Open {
    fn why(&self, id: u64) -> ClientError {
        match self {
            Self::Over(End::Left { heard }) if id > *heard => ClientError::Unheard,
            Self::Over(End::Garbled(problem)) => ClientError::Garbled(problem.clone()),
            _ => ClientError::Lost,
        }
    }
}

impl Client {
    /// Connects to the daemon of a state directory, with its operator key where this process may read
    /// it.
    pub async fn connect(
        places: &Places,
        who: impl Into<Introduction>,
    ) -> Result<Self, ClientError> {
        let Introduction { who, conversation } = who.into();
        let socket = places.socket();
        let failed = |error| connect_error(&socket, error);
        let short = Short::of(&socket).map_err(failed)?;
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
        let mut reader = Lines::new(BufReader::new(reader));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        // Read only now: the daemon makes the key before it listens.
        let operator_key = OperatorKey::read(places);
        let oldest = Some(OLDEST_SERVED);
        let conversation = conversation.map(|id| id.to_string());
        let hello = Hello { protocol: PROTOCOL, oldest, version, who, operator_key, conversation };
        write_line(&mut writer, &hello).await.map_err(ClientError::NoDaemon)?;
        let line = match reader.next().await {
            Ok(Some(line)) => line,
            Ok(None) => return Err(ClientError::NoDaemon(io::ErrorKind::ConnectionReset.into())),
            Err(error) => return Err(ClientError::NoDaemon(error)),
        };
        match parse(line).map_err(|error| ClientError::Garbled(error.to_string()))? {
            Welcome::Welcome { protocol, version, pid } => {
                Ok(Self::start(reader, writer, Met { protocol, version, pid }))
            }
            Welcome::Refused { refused, .. }
                if matches!(refused.kind, RefusalKind::Forbidden | RefusalKind::Limit) =>
            {
                Err(ClientError::Refused(refused))
            }
            Welcome::Refused { refused, version } => {
                Err(ClientError::OtherVersion { daemon: version, problem: refused.message })
            }
        }
    }

    fn start(reader: Lines<BufReader<OwnedReadHalf>>, writer: OwnedWriteHalf, daemon: Met) -> Self {
        let hang_up = CancellationToken::new();
        // Bounded by the questions that this side asks.
        let (lines, waiting) = mpsc::unbounded_channel();
        let open = Arc::new(Mutex::new(Open::Speaking(HashMap::new())));
        let (heard, hung_up) = (open.clone(), hang_up.clone());
        #[expect(clippy::disallowed_methods, reason = "ends with the last handle")]
        tokio::spawn(async move {
            let listening = listen(reader, &heard);
            tokio::pin!(listening);
            let end = tokio::select! {
                end = &mut listening => end,
                // What it said before it went away is still heard.
                () = speak(writer, waiting) => listening.await,
                () = hung_up.cancelled() => End::Lost,
            };
            *lock(&heard) = Open::Over(end);
        });
        let (next, _hang_up) = (AtomicU64::new(1), hang_up.drop_guard());
        let inner = Inner { daemon, next, lines, open, _hang_up };
        Self { inner: Arc::new(inner) }
    }

    /// Returns when the connection is over.
    pub async fn ended(&self) {
        self.inner.lines.closed().await;
    }

    /// The version of the daemon.
    pub fn daemon_version(&self) -> &str {
        &self.inner.daemon.version
    }

    pub fn daemon_pid(&self) -> u32 {
        self.inner.daemon.pid
    }

    /// Whether it can be asked everything. Who it is, and to make way, it can always be asked.
    pub fn is_understood(&self) -> Result<(), ClientError> {
        let Met { protocol, version, .. } = &self.inner.daemon;
        if is_spoken(*protocol) {
            return Ok(());
        }
        let problem =
            format!("it speaks protocol {protocol}, and this {OLDEST_SERVED} to {PROTOCOL}");
        Err(ClientError::OtherVersion { daemon: version.clone(), problem })
    }

    /// Asks and waits for the answer. Given up, the question is taken back.
    pub async fn ask<A: Ask>(&self, question: A) -> Result<A::Done, ClientError> {
        let mut answers = self.stream(question)?;
        loop {
            if let Step::Done(done) = answers.next().await? {
                return Ok(done);
            }
        }
    }

    /// Asks, and hears everything that comes before the answer too.
    pub fn stream<A: Ask>(&self, question: A) -> Result<Answers<A>, ClientError> {
        let id = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let ask: Request = question.into();
        if !ask.is_of_all_versions() {
            self.is_understood()?;
        }
        let question = line(&Asked { id, ask, room: ROOM })
            .map_err(|error| Refusal::limit(format!("the question cannot be asked: {error}")))?;
        // Bounded by the room that the daemon is given.
        let (sender, said) = mpsc::unbounded_channel();
        match &mut *lock(&self.inner.open) {
            Open::Speaking(open) => drop(open.insert(id, sender)),
            over @ Open::Over(_) => return Err(over.why(id)),
        }
        // Where nobody takes it any more, the answer says so.
        let _ = self.inner.lines.send(question);
        Ok(Answers { id, client: self.clone(), said, taken: 0, over: false, kind: PhantomData })
    }

    /// Says what is short and has no answer.
    fn say<T: Serialize>(&self, what: &T) {
        if let Ok(line) = line(what) {
            let _ = self.inner.lines.send(line);
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
pub enum Step<I, D> {
    Item(I),
    Done(D),
}

/// The answers to one question. Dropped before the last, the question is taken back.
#[derive(Debug)]
pub struct Answers<A> {
    id: u64,
    client: Client,
    said: mpsc::UnboundedReceiver<Said>,
    /// Bytes of items that the daemon does not know to be taken.
    taken: u32,
    over: bool,
    kind: PhantomData<fn(A)>,
}

impl<A: Ask> Answers<A> {
    pub async fn next(&mut self) -> Result<Step<A::Item, A::Done>, ClientError> {
        let Some(said) = self.heard().await else {
            self.over = true;
            return Err(lock(&self.client.inner.open).why(self.id));
        };
        let garbled = |error: serde_json::Error| ClientError::Garbled(error.to_string());
        match said {
            Said::Item(item) => {
                self.taken = self.taken.saturating_add(cost(&item, ROOM));
                serde_json::from_str(item.get()).map(Step::Item).map_err(garbled)
            }
            Said::Done(done) => {
                self.over = true;
                serde_json::from_str(done.get()).map(Step::Done).map_err(garbled)
            }
            Said::Refused(refusal) => {
                self.over = true;
                Err(refusal.into())
            }
            Said::Leaving => {
                self.over = true;
                Err(ClientError::Lost)
            }
        }
    }
}

impl<A> Answers<A> {
    /// Whatever is here, else what comes. Before it waits the daemon knows of all that was taken.
    async fn heard(&mut self) -> Option<Said> {
        let here = self.said.try_recv().ok();
        if self.taken >= TELL_AFTER || (here.is_none() && self.taken > 0) {
            let more = More { id: self.id, more: std::mem::take(&mut self.taken) };
            self.client.say(&more);
        }
        match here {
            Some(said) => Some(said),
            None => self.said.recv().await,
        }
    }
}

impl<A> Drop for Answers<A> {
    fn drop(&mut self) {
        if let Open::Speaking(open) = &mut *lock(&self.client.inner.open) {
            open.remove(&self.id);
        }
        if !self.over {
            self.client.say(&Cancel { id: self.id, cancel: true });
        }
    }
}

/// Hears until the daemon is gone.
async fn listen(mut reader: Lines<BufReader<OwnedReadHalf>>, open: &Mutex<Open>) -> End {
    loop {
        let said = match reader.next().await {
            Ok(Some(line)) => parse::<FromDaemon>(line),
            Ok(None) => return End::Lost,
            Err(error) => Err(error),
        };
        let said = match said {
            Ok(said) => said,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return End::Garbled(format!("an answer cannot be read: {error}"));
            }
            Err(_) => return End::Lost,
        };
        if matches!(said.what, Said::Leaving) {
            return End::Left { heard: said.id };
        }
        if let Open::Speaking(open) = &*lock(open)
            && let Some(sender) = open.get(&said.id)
        {
            // Whoever asked may have lost interest.
            let _ = sender.send(said.what);
        }
    }
}

async fn speak(mut writer: OwnedWriteHalf, mut lines: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        if writer.write_all(&line).await.is_err() {
            return;
        }
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
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
