//! The daemon: one per state folder.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use brigade_model::refusal::Refusal;
use brigade_model::task_tree::SessionState;
use brigade_process::hardening::file_limit;
use brigade_runtime::{Runtime, RuntimeBuilder};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::admission::{Admission, ConnectionLimits};
use crate::bound_socket::BoundSocket;
use crate::client_connection::serve_connection;
use crate::conversations::ConversationRegistry;
use crate::daemon_lock::{DaemonPhase, HeldLock, LockError};
use crate::operator_key::OperatorKey;
use crate::request_context::{DaemonState, MetricsRenderer};
use crate::state_dir::StateDir;
use crate::trust_store::TrustStore;

/// How long clients have to hear their last answers when the daemon leaves.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// How often it is looked whether the socket and the lock are where clients look for them.
const SOCKET_CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct DaemonOptions {
    pub state_dir: StateDir,
    /// With nobody connected and nothing alive for so long, it leaves. Never, when there is none.
    pub idle_timeout: Option<Duration>,
}

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("another daemon{} has this state folder", render_holder(.pid))]
    AlreadyRunning { pid: Option<u32> },
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("the state folder {folder}: {error}")]
    StateDir { folder: String, error: io::Error },
}

fn render_holder(pid: &Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

/// The right to a state folder. Given up when it is dropped.
#[derive(Debug)]
pub struct StateDirLock {
    state_dir: StateDir,
    lock: HeldLock,
}

impl StateDirLock {
    /// Takes the folder, which nobody else may have.
    pub fn acquire(places: &StateDir) -> Result<Self, DaemonError> {
        let failed = |error| state_dir_error(places, error);
        places.create().map_err(failed)?;
        let lock = HeldLock::acquire(&places.lock_path()).map_err(|error| match error {
            LockError::Held(holder) => DaemonError::AlreadyRunning { pid: holder.pid },
            LockError::Io(error) => failed(error),
        })?;
        places.restrict_permissions().map_err(failed)?;
        Ok(Self { state_dir: places.clone(), lock })
    }

    /// Tells clients how far the daemon is, as well as it can be told.
    fn write_phase(&self, phase: DaemonPhase) {
        if let Err(error) = self.lock.write_phase(phase) {
            tracing::warn!(%error, "the lock's file cannot be written");
        }
    }
}

#[derive(Debug)]
pub struct Daemon {
    state: Arc<DaemonState>,
    socket: BoundSocket,
    idle_timeout: Option<Duration>,
    state_dir_lock: StateDirLock,
}

impl Daemon {
    /// Recovers what the store holds, and only then listens.
    pub async fn open(
        claimed: StateDirLock,
        options: DaemonOptions,
        builder: RuntimeBuilder,
    ) -> Result<Self, DaemonError> {
        let places = claimed.state_dir.clone();
        let failed = |error| state_dir_error(&places, error);
        let operator_key = OperatorKey::ensure(&places).map_err(failed)?;
        let limits = ConnectionLimits::for_files(file_limit());
        let runtime = builder.start().await?;
        let socket = BoundSocket::bind(&places).map_err(failed)?;
        claimed.write_phase(DaemonPhase::Serving);
        let conversations = ConversationRegistry::new(runtime.clock());
        let shared = Arc::new(DaemonState {
            runtime,
            state_dir: places,
            operator_key,
            admission: Admission::new(limits),
            started_at: Instant::now(),
            client_count: AtomicUsize::new(0),
            presence_count: AtomicUsize::new(0),
            conversations,
            trust_store: OnceLock::new(),
            metrics_renderer: OnceLock::new(),
            shutdown_token: CancellationToken::new(),
        });
        Ok(Self {
            state: shared,
            socket,
            idle_timeout: options.idle_timeout,
            state_dir_lock: claimed,
        })
    }

    /// Lets clients ask for what is counted, which this writes down as Prometheus reads it.
    #[must_use]
    pub fn with_metrics(self, write: impl Fn() -> String + Send + Sync + 'static) -> Self {
        let _ = self.state.metrics_renderer.set(MetricsRenderer(Box::new(write)));
        self
    }

    /// Lets the operator see and change the definitions that are trusted.
    #[must_use]
    pub fn with_trust_store(self, trust: Arc<TrustStore>) -> Self {
        let _ = self.state.trust_store.set(trust);
        self
    }

    pub fn runtime(&self) -> &Runtime {
        &self.state.runtime
    }

    /// Makes it leave in good order when it is cancelled.
    pub fn shutdown_token(&self) -> CancellationToken {
        self.state.shutdown_token.clone()
    }

    /// Serves until it is told to leave or has nothing to do. Commands go on without it.
    pub async fn run(self) -> Result<(), Refusal> {
        let Self { state: shared, mut socket, idle_timeout: idle, state_dir_lock: claimed } = self;
        let mut clients = JoinSet::new();
        let mut idleness = IdleTimer { limit: idle, since: Instant::now() };
        let mut looks = tokio::time::interval(SOCKET_CHECK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                accepted = socket.accept() => match accepted {
                    Ok(stream) => {
                        idleness.since = Instant::now();
                        spawn_connection(&mut clients, shared.clone(), stream);
                    }
                    Err(error) => {
                        // Out of descriptors, most likely: others have to go first.
                        tracing::warn!(%error, "a client could not be let in");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_) = clients.join_next() => idleness.since = Instant::now(),
                () = shared.shutdown_token.cancelled() => break,
                _ = looks.tick() => {
                    if !ensure_reachable(&claimed, &mut socket) {
                        break;
                    }
                }
                () = tokio::time::sleep(idleness.poll_interval()) => {
                    // Who was let in may not have said a word yet. A client that only attends does
                    // not keep the daemon from leaving.
                    let attending = shared.presence_count.load(Ordering::Relaxed);
                    if clients.len() <= attending && idleness.is_expired(&shared).await {
                        break;
                    }
                }
            }
        }
        // From here on a client finds nobody and starts the next daemon, which waits for the lock.
        claimed.write_phase(DaemonPhase::ShuttingDown);
        socket.close();
        shared.shutdown_token.cancel();
        let farewell = async { while clients.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(SHUTDOWN_GRACE, farewell).await;
        clients.shutdown().await;
        let left = shared.runtime.clone().shutdown().await;
        // The store goes before the folder does: the next daemon finds both free.
        drop(shared);
        drop(claimed);
        left
    }
}

fn spawn_connection(clients: &mut JoinSet<()>, shared: Arc<DaemonState>, stream: UnixStream) {
    clients.spawn(async move {
        if let Err(error) = serve_connection(shared, stream).await {
            tracing::debug!(%error, "a client went away");
        }
    });
}

/// Binds the socket again when it is gone. False when the folder is not this daemon's any more: nobody can reach it
/// there, and the next daemon may have made a folder of the same name.
fn ensure_reachable(claimed: &StateDirLock, socket: &mut BoundSocket) -> bool {
    let places = &claimed.state_dir;
    if !claimed.lock.is_at(&places.lock_path()) {
        tracing::error!(folder = %places.path().display(), "the state folder was removed");
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

fn state_dir_error(places: &StateDir, error: io::Error) -> DaemonError {
    DaemonError::StateDir { folder: places.path().display().to_string(), error }
}

/// Whether there is anything to stay for.
struct IdleTimer {
    limit: Option<Duration>,
    since: Instant,
}

impl IdleTimer {
    fn poll_interval(&self) -> Duration {
        let often = Duration::from_secs(1);
        self.limit.map_or(Duration::from_secs(3600), |limit| (limit / 4).min(often))
    }

    async fn is_expired(&mut self, shared: &DaemonState) -> bool {
        let Some(limit) = self.limit else { return false };
        if shared.client_count.load(Ordering::Relaxed) > 0 || is_busy(&shared.runtime).await {
            self.since = Instant::now();
            return false;
        }
        self.since.elapsed() >= limit
    }
}

async fn is_busy(runtime: &Runtime) -> bool {
    let Ok(sessions) = runtime.sessions().await else { return true };
    for row in sessions.iter().filter(|row| row.state != SessionState::Closed) {
        let Ok(session) = runtime.operator_session(row.id).await else { return true };
        if session.list().iter().any(|(_, row)| row.is_alive()) {
            return true;
        }
    }
    false
}
