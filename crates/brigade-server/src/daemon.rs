//! The daemon: one per state folder.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use brigade_model::refusal::Refusal;
use brigade_model::tree::SessionState;
use brigade_process::hardening::file_limit;
use brigade_runtime::{Builder, Runtime};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::admission::{Admission, ConnectionLimits};
use crate::bound_socket::BoundSocket;
use crate::connection::serve;
use crate::conversations::Conversations;
use crate::daemon_lock::{DaemonPhase, HeldLock, LockError};
use crate::desk::{Counts, Shared};
use crate::operator_key::OperatorKey;
use crate::places::Places;
use crate::trust::TrustStore;

/// How long clients have to hear their last answers when the daemon leaves.
const FAREWELL: Duration = Duration::from_secs(2);
/// How often it is looked whether the socket and the lock are where clients look for them.
const SOCKET_LOOK: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct DaemonOptions {
    pub places: Places,
    /// With nobody connected and nothing alive for so long, it leaves. Never, when there is none.
    pub idle: Option<Duration>,
}

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("another daemon{} has this state folder", holder(.pid))]
    Running { pid: Option<u32> },
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("the state folder {folder}: {error}")]
    Folder { folder: String, error: io::Error },
}

fn holder(pid: &Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

/// The right to a state folder. Given up when it is dropped.
#[derive(Debug)]
pub struct Claimed {
    places: Places,
    lock: HeldLock,
}

impl Claimed {
    /// Takes the folder, which nobody else may have.
    pub fn take(places: &Places) -> Result<Self, DaemonError> {
        let failed = |error| folder_error(places, error);
        places.make().map_err(failed)?;
        let lock = HeldLock::take(&places.lock()).map_err(|error| match error {
            LockError::Held(holder) => DaemonError::Running { pid: holder.pid },
            LockError::Io(error) => failed(error),
        })?;
        places.make_private().map_err(failed)?;
        Ok(Self { places: places.clone(), lock })
    }

    /// Tells clients how far the daemon is, as well as it can be told.
    fn enter(&self, phase: DaemonPhase) {
        if let Err(error) = self.lock.write_phase(phase) {
            tracing::warn!(%error, "the lock's file cannot be written");
        }
    }
}

#[derive(Debug)]
pub struct Daemon {
    shared: Arc<Shared>,
    socket: BoundSocket,
    idle: Option<Duration>,
    claimed: Claimed,
}

impl Daemon {
    /// Recovers what the store holds, and only then listens.
    pub async fn open(
        claimed: Claimed,
        options: DaemonOptions,
        builder: Builder,
    ) -> Result<Self, DaemonError> {
        let places = claimed.places.clone();
        let failed = |error| folder_error(&places, error);
        let operator_key = OperatorKey::ensure(&places).map_err(failed)?;
        let limits = ConnectionLimits::for_files(file_limit());
        let runtime = builder.start().await?;
        let socket = BoundSocket::bind(&places).map_err(failed)?;
        claimed.enter(DaemonPhase::Serving);
        let conversations = Conversations::new(runtime.clock());
        let shared = Arc::new(Shared {
            runtime,
            places,
            operator_key,
            admission: Admission::new(limits),
            began: Instant::now(),
            clients: AtomicUsize::new(0),
            attending: AtomicUsize::new(0),
            conversations,
            trust: OnceLock::new(),
            counts: OnceLock::new(),
            leaving: CancellationToken::new(),
        });
        Ok(Self { shared, socket, idle: options.idle, claimed })
    }

    /// Lets clients ask for what is counted, which this writes down as Prometheus reads it.
    #[must_use]
    pub fn with_counts(self, write: impl Fn() -> String + Send + Sync + 'static) -> Self {
        let _ = self.shared.counts.set(Counts(Box::new(write)));
        self
    }

    /// Lets the operator see and change the definitions that are trusted.
    #[must_use]
    pub fn with_trust(self, trust: Arc<TrustStore>) -> Self {
        let _ = self.shared.trust.set(trust);
        self
    }

    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    /// Makes it leave in good order when it is cancelled.
    pub fn leaving(&self) -> CancellationToken {
        self.shared.leaving.clone()
    }

    /// Serves until it is told to leave or has nothing to do. Commands go on without it.
    pub async fn run(self) -> Result<(), Refusal> {
        let Self { shared, mut socket, idle, claimed } = self;
        let mut clients = JoinSet::new();
        let mut idleness = Idleness { limit: idle, since: Instant::now() };
        let mut looks = tokio::time::interval(SOCKET_LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                accepted = socket.accept() => match accepted {
                    Ok(stream) => {
                        idleness.since = Instant::now();
                        greet(&mut clients, shared.clone(), stream);
                    }
                    Err(error) => {
                        // Out of descriptors, most likely: others have to go first.
                        tracing::warn!(%error, "a client could not be let in");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_) = clients.join_next() => idleness.since = Instant::now(),
                () = shared.leaving.cancelled() => break,
                _ = looks.tick() => {
                    if !stay_reachable(&claimed, &mut socket) {
                        break;
                    }
                }
                () = tokio::time::sleep(idleness.look_again()) => {
                    // Who was let in may not have said a word yet. A client that only attends does
                    // not keep the daemon from leaving.
                    let attending = shared.attending.load(Ordering::Relaxed);
                    if clients.len() <= attending && idleness.is_over(&shared).await {
                        break;
                    }
                }
            }
        }
        // From here on a client finds nobody and starts the next daemon, which waits for the lock.
        claimed.enter(DaemonPhase::Leaving);
        socket.close();
        shared.leaving.cancel();
        let farewell = async { while clients.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
        clients.shutdown().await;
        let left = shared.runtime.clone().shutdown().await;
        // The store goes before the folder does: the next daemon finds both free.
        drop(shared);
        drop(claimed);
        left
    }
}

fn greet(clients: &mut JoinSet<()>, shared: Arc<Shared>, stream: UnixStream) {
    clients.spawn(async move {
        if let Err(error) = serve(shared, stream).await {
            tracing::debug!(%error, "a client went away");
        }
    });
}

/// Binds the socket again when it is gone. False when the folder is not this daemon's any more: nobody can reach it
/// there, and the next daemon may have made a folder of the same name.
fn stay_reachable(claimed: &Claimed, socket: &mut BoundSocket) -> bool {
    let places = &claimed.places;
    if !claimed.lock.is_at(&places.lock()) {
        tracing::error!(folder = %places.folder().display(), "the state folder was removed");
        return false;
    }
    if socket.is_in_place() {
        return true;
    }
    match BoundSocket::bind(places) {
        Ok(bound) => {
            tracing::warn!("the socket was removed, and is bound again");
            *socket = bound;
        }
        // It is tried again with the next look.
        Err(error) => tracing::error!(%error, "the socket was removed and cannot be bound again"),
    }
    true
}

fn folder_error(places: &Places, error: io::Error) -> DaemonError {
    DaemonError::Folder { folder: places.folder().display().to_string(), error }
}

/// Whether there is anything to stay for.
struct Idleness {
    limit: Option<Duration>,
    since: Instant,
}

impl Idleness {
    fn look_again(&self) -> Duration {
        let often = Duration::from_secs(1);
        self.limit.map_or(Duration::from_secs(3600), |limit| (limit / 4).min(often))
    }

    async fn is_over(&mut self, shared: &Shared) -> bool {
        let Some(limit) = self.limit else { return false };
        if shared.clients.load(Ordering::Relaxed) > 0 || is_busy(&shared.runtime).await {
            self.since = Instant::now();
            return false;
        }
        self.since.elapsed() >= limit
    }
}

async fn is_busy(runtime: &Runtime) -> bool {
    let Ok(sessions) = runtime.sessions().await else { return true };
    for row in sessions.iter().filter(|row| row.state != SessionState::Closed) {
        let Ok(session) = runtime.operate(row.id).await else { return true };
        if session.list().iter().any(|(_, row)| row.is_living()) {
            return true;
        }
    }
    false
}
