//! One server, shared by all agents: reached at first use, reached again when it was lost.

use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::bounded_transport::ConnectionSignals;
use super::connection::McpConnection;
use super::mcp_tool::McpTool;
use super::server_config::McpServerConfig;
use super::server_processes::ServerProcesses;
use super::tool_list::CheckedToolList;
use brigade_agent::tool::Tool;

/// Between two tries, at the least and at the most.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(500);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(30);
/// A connection that lasted longer says nothing against the next one.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Between two lists of a server that tells of changes again and again.
const RELIST_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct ServerLink {
    pub(super) name: Arc<str>,
    server: McpServerConfig,
    /// Held while the server is being reached, so that it is reached once for all who wait.
    state: Mutex<LinkState>,
    catalog: SyncMutex<ToolCatalog>,
    processes: ServerProcesses,
}

#[derive(Debug, Default)]
struct LinkState {
    connection: Option<Arc<McpConnection>>,
    /// Tries in a row that led to nothing.
    failures: u32,
    /// Connections in a row that were lost soon.
    losses: u32,
    not_before: Option<Instant>,
    problem: String,
}

/// What is known of a server's tools.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolCatalog {
    /// Rises with each change.
    pub(super) version: u64,
    /// None until they have been listed once. What was listed stays while the server is away.
    pub(super) tools: Option<Arc<[Arc<dyn Tool>]>>,
    pub(super) problems: Vec<String>,
}

impl ServerLink {
    pub(super) fn new(name: Arc<str>, server: McpServerConfig, house: ServerProcesses) -> Self {
        let (state, standing) = (Mutex::default(), SyncMutex::default());
        Self { name, server, state, catalog: standing, processes: house }
    }

    pub(super) fn catalog(&self) -> ToolCatalog {
        self.lock_catalog().clone()
    }

    pub(super) fn version(&self) -> u64 {
        self.lock_catalog().version
    }

    fn lock_catalog(&self) -> MutexGuard<'_, ToolCatalog> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that can be used: the one that there is, or a new one. A server that could not
    /// be reached is left alone for a while, and tried again for as long as patience lasts.
    pub(super) async fn connect(
        self: &Arc<Self>,
        patience: Duration,
    ) -> Result<Arc<McpConnection>, String> {
        let until = Instant::now() + patience;
        tokio::select! {
            connected = self.connect_before(until) => connected,
            () = self.processes.shutdown_token.cancelled() => Err("the runtime is leaving".to_owned()),
        }
    }

    async fn connect_before(
        self: &Arc<Self>,
        until: Instant,
    ) -> Result<Arc<McpConnection>, String> {
        let mut state = self.state.lock().await;
        if let Some(connection) = state.connection.as_ref().filter(|one| one.is_usable()) {
            return Ok(connection.clone());
        }
        state.count_loss();
        loop {
            if let Some(then) = state.not_before {
                if then > until {
                    let seconds = then.saturating_duration_since(Instant::now()).as_secs() + 1;
                    return Err(format!("{}; it is tried again in {seconds} s", state.problem));
                }
                sleep_until(then).await;
            }
            match self.open_connection().await {
                Ok(connection) => {
                    (state.not_before, state.connection) = (None, Some(connection.clone()));
                    state.failures = 0;
                    return Ok(connection);
                }
                Err(problem) => {
                    self.mark_unreachable(&problem);
                    state.record_failure(problem);
                }
            }
        }
    }

    async fn open_connection(self: &Arc<Self>) -> Result<Arc<McpConnection>, String> {
        let opened = McpConnection::open(&self.name, &self.server, &self.processes).await?;
        let opened = Arc::new(opened);
        self.refresh_tools(&opened).await?;
        let (link, connection) = (Arc::downgrade(self), Arc::downgrade(&opened));
        let watch = follow_tool_changes(
            link,
            connection,
            opened.signals.clone(),
            self.processes.shutdown_token.clone(),
        );
        self.processes.tasks.spawn(watch);
        Ok(opened)
    }

    /// Hears which tools there are, for the next model call of every agent.
    async fn refresh_tools(self: &Arc<Self>, connection: &McpConnection) -> Result<(), String> {
        let listing = timeout(self.server.timeouts.start, connection.list_tools()).await;
        let told = listing.unwrap_or_else(|_| Err("its list of tools does not end".to_owned()))?;
        let reported =
            CheckedToolList::check_tools(&self.name, told, self.server.trusts_hints).await;
        for problem in &reported.problems {
            tracing::warn!(server = %self.name, "{problem}");
        }
        let tool = |listed| -> Arc<dyn Tool> { Arc::new(McpTool::new(self, listed)) };
        let tools = Some(reported.tools.into_iter().map(tool).collect());
        let mut standing = self.lock_catalog();
        let version = standing.version + 1;
        *standing = ToolCatalog { version, tools, problems: reported.problems };
        Ok(())
    }

    fn mark_unreachable(&self, problem: &str) {
        tracing::warn!(server = %self.name, "an MCP server cannot be reached: {problem}");
        let mut standing = self.lock_catalog();
        standing.version += 1;
        standing.problems = vec![problem.to_owned()];
    }

    /// Lets go of the connection. What belongs to it ends with the links.
    pub(super) async fn close(&self) {
        self.state.lock().await.connection = None;
    }
}

impl LinkState {
    /// A connection that was lost soon after it was made counts like one that was not made.
    fn count_loss(&mut self) {
        let Some(lost) = self.connection.take() else { return };
        if lost.opened_at.elapsed() >= STABLE_AFTER {
            self.losses = 0;
            return;
        }
        self.failures = self.losses;
        self.losses = self.losses.saturating_add(1);
        self.record_failure("it was lost soon after it was reached".to_owned());
    }

    fn record_failure(&mut self, problem: String) {
        let pause = RECONNECT_PAUSE_MIN
            .saturating_mul(2_u32.saturating_pow(self.failures))
            .min(RECONNECT_PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(Instant::now() + pause);
        self.problem = problem;
    }
}

/// Lists again when a server says that it has other tools, and not without end.
async fn follow_tool_changes(
    link: Weak<ServerLink>,
    connection: Weak<McpConnection>,
    heard: Arc<ConnectionSignals>,
    ending: CancellationToken,
) {
    loop {
        tokio::select! {
            () = heard.closed.cancelled() => return,
            () = ending.cancelled() => return,
            () = heard.tools_changed.notified() => {}
        }
        let (Some(link), Some(connection)) = (link.upgrade(), connection.upgrade()) else { return };
        if let Err(problem) = link.refresh_tools(&connection).await {
            tracing::warn!(server = %link.name, "its tools stay as they were: {problem}");
        }
        drop((link, connection));
        tokio::select! {
            () = heard.closed.cancelled() => return,
            () = ending.cancelled() => return,
            () = tokio::time::sleep(RELIST_INTERVAL) => {}
        }
    }
}
