//! The daemon: one per state directory.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use brigade_mcp::server::streamable_http::McpHttpService;
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
use crate::external_programs::ExternalPrograms;
use crate::http::listeners::{HttpListeners, ListenOptions};
use crate::http::shared_state::HttpShared;
use crate::notifications::notifier::NotifierSet;
use crate::notifications::service::NotificationService;
use crate::request_context::{DaemonState, MetricsRenderer};
use crate::shutdown_handle::ShutdownHandle;
use crate::store_id::ensure_runtime_store_id;
use crate::trust_store::TrustStore;
use brigade_protocol::daemon_lock::{DaemonPhase, HeldLock, LockError};
use brigade_protocol::operator_key::OperatorKey;
use brigade_protocol::requests::HttpListenerInfo;
use brigade_protocol::state_dir::StateDir;

/// The time for clients to read their last replies when the daemon shuts down.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// The interval of checks that the socket and the lock are at their paths.
const SOCKET_CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct DaemonOptions {
    pub state_dir: StateDir,
    /// The time without clients and alive tasks after which the daemon shuts down; `None` is never.
    pub idle_timeout: Option<Duration>,
    /// The longest drain before a requested shutdown; `None` shuts down without one.
    pub drain_timeout: Option<Duration>,
    /// The address for HTTP, in place of the stored one.
    pub listen: Option<ListenOptions>,
}

impl DaemonOptions {
    /// Creates options without timeouts.
    pub fn new(state_dir: StateDir) -> Self {
        Self { state_dir, idle_timeout: None, drain_timeout: None, listen: None }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("another daemon{} has this state directory", render_holder(.pid))]
    AlreadyRunning { pid: Option<u32> },
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("the state directory {path}: {error}")]
    StateDir { path: String, error: io::Error },
}

fn render_holder(pid: &Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

/// The exclusive lock of a state directory, released on drop.
#[derive(Debug)]
pub struct StateDirLock {
    state_dir: StateDir,
    lock: HeldLock,
}

impl StateDirLock {
    /// Locks the directory, or fails if another process holds the lock.
    pub fn acquire(state_dir: &StateDir) -> Result<Self, DaemonError> {
        let failed = |error| state_dir_error(state_dir, error);
        state_dir.create().map_err(failed)?;
        let lock = HeldLock::acquire(&state_dir.lock_path()).map_err(|error| match error {
            LockError::Held(holder) => DaemonError::AlreadyRunning { pid: holder.pid },
            LockError::Io(error) => failed(error),
        })?;
        state_dir.restrict_permissions().map_err(failed)?;
        Ok(Self { state_dir: state_dir.clone(), lock })
    }

    /// Writes the daemon's phase for clients. An error is only logged.
    fn write_phase(&self, phase: DaemonPhase) {
        if let Err(error) = self.lock.write_phase(phase) {
            tracing::warn!(%error, "the lock file cannot be written");
        }
    }
}

#[derive(Debug)]
pub struct Daemon {
    state: Arc<DaemonState>,
    socket: BoundSocket,
    idle_timeout: Option<Duration>,
    drain_timeout: Option<Duration>,
    state_dir_lock: StateDirLock,
}

impl Daemon {
    /// Recovers the stored sessions, and only then listens.
    pub async fn open(
        state_dir_lock: StateDirLock,
        options: DaemonOptions,
        builder: RuntimeBuilder,
    ) -> Result<Self, DaemonError> {
        let state_dir = state_dir_lock.state_dir.clone();
        let failed = |error| state_dir_error(&state_dir, error);
        let operator_key = OperatorKey::ensure(&state_dir).map_err(failed)?;
        let limits = ConnectionLimits::for_files(file_limit());
        let runtime = builder.start().await?;
        let socket = BoundSocket::bind(&state_dir).map_err(failed)?;
        state_dir_lock.write_phase(DaemonPhase::Serving);
        let conversations = ConversationRegistry::new(runtime.clock());
        let shutdown = ShutdownHandle::default();
        let store_id = ensure_runtime_store_id(runtime.records()).await?;
        let http_listeners = HttpListeners::new(limits.http, shutdown.shutdown_token.clone());
        let mcp_service = McpHttpService::new(&shutdown.shutdown_token);
        let state = Arc::new(DaemonState {
            runtime,
            state_dir,
            operator_key,
            admission: Admission::new(limits),
            started_at: Instant::now(),
            store_id,
            http_listeners,
            http: HttpShared::default(),
            is_server: options.listen.is_some(),
            mcp_service,
            client_count: AtomicUsize::new(0),
            presence_count: AtomicUsize::new(0),
            conversations,
            trust_store: OnceLock::new(),
            external_programs: OnceLock::new(),
            metrics_renderer: OnceLock::new(),
            notifications: NotificationService::default(),
            shutdown,
        });
        let DaemonOptions { idle_timeout, drain_timeout, listen, .. } = options;
        state.http_listeners.restore(&state, listen).await?;
        Ok(Self { state, socket, idle_timeout, drain_timeout, state_dir_lock })
    }

    /// Sets the function that renders the metrics in the text format of Prometheus.
    #[must_use]
    pub fn with_metrics(self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        let _ = self.state.metrics_renderer.set(MetricsRenderer(Box::new(render)));
        self
    }

    /// Sets the store of trusted definitions, which the operator can read and change.
    #[must_use]
    pub fn with_trust_store(self, trust: Arc<TrustStore>) -> Self {
        let _ = self.state.trust_store.set(trust);
        self
    }

    /// Sets the agent programs of other vendors, which the operator can list.
    #[must_use]
    pub fn with_external_programs(self, programs: Arc<ExternalPrograms>) -> Self {
        let _ = self.state.external_programs.set(programs);
        self
    }

    /// Sets the notifiers, which are called for outcomes, questions and approvals.
    #[must_use]
    pub fn with_notifiers(self, notifiers: NotifierSet) -> Self {
        self.state.notifications.set_notifiers(notifiers);
        self
    }

    pub fn runtime(&self) -> &Runtime {
        &self.state.runtime
    }

    /// Returns its listeners.
    pub async fn listeners(&self) -> Vec<HttpListenerInfo> {
        self.state.http_listeners.describe().await
    }

    /// Listens for HTTP, and returns the URL. The next daemon listens there too.
    pub async fn listen(&self, options: ListenOptions) -> Result<String, Refusal> {
        self.state.http_listeners.listen(&self.state, options).await
    }

    /// Returns a token that shuts down the daemon when it is cancelled, without a drain.
    pub fn shutdown_token(&self) -> CancellationToken {
        self.state.shutdown.shutdown_token.clone()
    }

    /// Returns a handle that shuts down the daemon after a drain.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.state.shutdown.clone()
    }

    /// Serves until it is asked to shut down or was idle for its timeout. Processes keep running.
    pub async fn run(self) -> Result<(), Refusal> {
        let Self { state, mut socket, idle_timeout, drain_timeout, state_dir_lock } = self;
        let mut clients = JoinSet::new();
        let mut notifications = spawn_notifications(&state);
        let mut idle_timer = IdleTimer { limit: idle_timeout, since: Instant::now() };
        let mut socket_checks = tokio::time::interval(SOCKET_CHECK_INTERVAL);
        socket_checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut idle_checks = tokio::time::interval(idle_timer.poll_interval());
        idle_checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Clients are served during the drain: they answer questions and wait for results.
        let mut drain = Box::pin(drain_when_requested(state.clone(), drain_timeout));
        loop {
            tokio::select! {
                accepted = socket.accept() => match accepted {
                    Ok(stream) => {
                        idle_timer.since = Instant::now();
                        spawn_connection(&mut clients, state.clone(), stream);
                    }
                    Err(error) => {
                        // Most likely there are no free file descriptors until a client
                        // disconnects.
                        tracing::warn!(%error, "accepting a connection failed");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_) = clients.join_next() => idle_timer.since = Instant::now(),
                () = &mut drain => break,
                () = state.shutdown.shutdown_token.cancelled() => break,
                _ = socket_checks.tick() => {
                    if !ensure_reachable(&state_dir_lock, &mut socket) {
                        break;
                    }
                }
                _ = idle_checks.tick() => {
                    // An accepted client may not be counted yet. A connection that only signals
                    // presence does not delay an idle shutdown.
                    let presence_count = state.presence_count.load(Ordering::Relaxed);
                    if clients.len() <= presence_count && idle_timer.is_expired(&state).await {
                        break;
                    }
                }
            }
        }
        drop(drain);
        // From now on a client finds no socket, and starts the next daemon when the lock is free.
        state_dir_lock.write_phase(DaemonPhase::ShuttingDown);
        socket.close();
        state.shutdown.shutdown_token.cancel();
        let drained = async {
            while clients.join_next().await.is_some() {}
            state.http_listeners.join().await;
            while notifications.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(SHUTDOWN_GRACE, drained).await;
        clients.shutdown().await;
        notifications.shutdown().await;
        let result = state.runtime.clone().shutdown().await;
        // The store is closed before the lock is released, so that the next daemon finds both free.
        drop(state);
        drop(state_dir_lock);
        result
    }
}

/// Waits for a requested shutdown, and then until no task runs or the timeout is over.
async fn drain_when_requested(state: Arc<DaemonState>, timeout: Option<Duration>) {
    state.shutdown.drain_token.cancelled().await;
    let Some(timeout) = timeout else { return };
    tracing::info!(?timeout, "draining: nothing new is started");
    match state.runtime.drain(timeout).await {
        Ok(drained) => {
            for task in drained.running() {
                tracing::warn!(session = %task.session, task = task.address, "still runs");
            }
        }
        Err(error) => tracing::warn!(%error, "the drain failed"),
    }
}

/// Starts the service of notifications, which ends with the shutdown.
fn spawn_notifications(state: &Arc<DaemonState>) -> JoinSet<()> {
    let mut service = JoinSet::new();
    let state = state.clone();
    service.spawn(async move {
        let shutdown_token = state.shutdown.shutdown_token.clone();
        state.notifications.run(&state.runtime, &shutdown_token).await;
    });
    service
}

fn spawn_connection(clients: &mut JoinSet<()>, state: Arc<DaemonState>, stream: UnixStream) {
    clients.spawn(async move {
        if let Err(error) = serve_connection(state, stream).await {
            tracing::debug!(%error, "a client disconnected");
        }
    });
}

/// Binds the socket again if it was removed. Returns false if the directory no longer belongs to
/// this daemon. No client can reach it then, and the next daemon may have created the directory
/// again.
fn ensure_reachable(state_dir_lock: &StateDirLock, socket: &mut BoundSocket) -> bool {
    let state_dir = &state_dir_lock.state_dir;
    if !state_dir_lock.lock.is_at(&state_dir.lock_path()) {
        let path = state_dir.path().display();
        tracing::error!(%path, "the state directory was removed");
        return false;
    }
    if socket.is_in_place() {
        return true;
    }
    match BoundSocket::bind(state_dir) {
        Ok(bound) => {
            tracing::warn!("the socket was removed, and is bound again");
            *socket = bound;
        }
        // The next check tries again.
        Err(error) => tracing::error!(%error, "the socket was removed and cannot be bound again"),
    }
    true
}

fn state_dir_error(state_dir: &StateDir, error: io::Error) -> DaemonError {
    DaemonError::StateDir { path: state_dir.path().display().to_string(), error }
}

/// Measures the time without clients and alive tasks.
struct IdleTimer {
    limit: Option<Duration>,
    since: Instant,
}

impl IdleTimer {
    fn poll_interval(&self) -> Duration {
        let max = Duration::from_secs(1);
        let interval = self.limit.map_or(Duration::from_secs(3600), |limit| (limit / 4).min(max));
        interval.max(Duration::from_millis(1))
    }

    async fn is_expired(&mut self, state: &DaemonState) -> bool {
        let Some(limit) = self.limit else { return false };
        let has_clients = state.client_count.load(Ordering::Relaxed) > 0
            || state.http_listeners.has_connections();
        if has_clients || state.notifications.has_pending() || is_busy(&state.runtime).await {
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
        if session.list().iter().any(|task| task.row.is_alive()) {
            return true;
        }
    }
    false
}
