//! One server, shared by all agents. It connects at first use and after a loss.

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

/// The minimum and maximum pause between two attempts to connect.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(500);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(30);
/// A connection that lasted longer than this counts as stable.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// The minimum time between two listings for a server that often reports changes.
const RELIST_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct ServerLink {
    pub(super) name: Arc<str>,
    server: McpServerConfig,
    /// The state, locked during an attempt to connect, so that all waiting calls share it.
    state: Mutex<LinkState>,
    catalog: SyncMutex<ToolCatalog>,
    processes: ServerProcesses,
}

#[derive(Debug, Default)]
struct LinkState {
    connection: Option<Arc<McpConnection>>,
    /// The number of consecutive failed attempts.
    failures: u32,
    /// The number of consecutive connections that were lost soon.
    losses: u32,
    not_before: Option<Instant>,
    problem: String,
}

/// The known tools of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolCatalog {
    /// Incremented with each change.
    pub(super) version: u64,
    /// `None` before the first listing. The last list stays while the server is unreachable.
    pub(super) tools: Option<Arc<[Tool]>>,
    pub(super) problems: Vec<String>,
}

impl ServerLink {
    pub(super) fn new(name: Arc<str>, server: McpServerConfig, processes: ServerProcesses) -> Self {
        Self { name, server, state: Mutex::default(), catalog: SyncMutex::default(), processes }
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

    /// Returns a usable connection, the current one or a new one. After a failure there is a pause;
    /// further attempts follow until the wait is over.
    pub(super) async fn connect(
        self: &Arc<Self>,
        max_wait: Duration,
    ) -> Result<Arc<McpConnection>, String> {
        let until = Instant::now() + max_wait;
        tokio::select! {
            connected = self.connect_before(until) => connected,
            () = self.processes.shutdown_token.cancelled() => Err("the runtime is shutting down".to_owned()),
        }
    }

    async fn connect_before(
        self: &Arc<Self>,
        until: Instant,
    ) -> Result<Arc<McpConnection>, String> {
        let mut state = self.state.lock().await;
        if let Some(connection) =
            state.connection.as_ref().filter(|connection| connection.is_usable())
        {
            return Ok(connection.clone());
        }
        state.count_loss();
        loop {
            if let Some(next_try) = state.not_before {
                if next_try > until {
                    let seconds = next_try.saturating_duration_since(Instant::now()).as_secs() + 1;
                    return Err(format!("{}; the next attempt is in {seconds} s", state.problem));
                }
                sleep_until(next_try).await;
            }
            match self.open_connection().await {
                Ok(connection) => {
                    state.not_before = None;
                    state.connection = Some(connection.clone());
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
        let link = Arc::downgrade(self);
        let connection = Arc::downgrade(&opened);
        let follow = follow_tool_changes(
            link,
            connection,
            opened.signals.clone(),
            self.processes.shutdown_token.clone(),
        );
        self.processes.tasks.spawn(follow);
        Ok(opened)
    }

    /// Lists the tools, for the next model call of every agent.
    async fn refresh_tools(self: &Arc<Self>, connection: &McpConnection) -> Result<(), String> {
        let listing = timeout(self.server.timeouts.start, connection.list_tools()).await;
        let raw_list = listing
            .unwrap_or_else(|_| Err("the server did not list its tools in time".to_owned()))?;
        let checked =
            CheckedToolList::check_tools(&self.name, raw_list, self.server.trusts_hints).await;
        for problem in &checked.problems {
            tracing::warn!(server = %self.name, "{problem}");
        }
        let tool = |listed| Tool::new(McpTool::new(self, listed));
        let tools = Some(checked.tools.into_iter().map(tool).collect());
        let mut catalog = self.lock_catalog();
        let version = catalog.version + 1;
        *catalog = ToolCatalog { version, tools, problems: checked.problems };
        Ok(())
    }

    fn mark_unreachable(&self, problem: &str) {
        tracing::warn!(server = %self.name, "an MCP server cannot be reached: {problem}");
        let mut catalog = self.lock_catalog();
        catalog.version += 1;
        catalog.problems = vec![problem.to_owned()];
    }

    /// Drops the connection. Its process ends with the last reference to it.
    pub(super) async fn close(&self) {
        self.state.lock().await.connection = None;
    }
}

impl LinkState {
    /// Counts a connection that was lost soon after it was made as a failed attempt.
    fn count_loss(&mut self) {
        let Some(lost) = self.connection.take() else { return };
        if lost.opened_at.elapsed() >= STABLE_AFTER {
            self.losses = 0;
            return;
        }
        self.failures = self.losses;
        self.losses = self.losses.saturating_add(1);
        self.record_failure("the connection was lost soon after it was made".to_owned());
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

/// Lists the tools again when the server reports a change, with a pause between listings.
async fn follow_tool_changes(
    link: Weak<ServerLink>,
    connection: Weak<McpConnection>,
    signals: Arc<ConnectionSignals>,
    shutdown_token: CancellationToken,
) {
    loop {
        tokio::select! {
            () = signals.closed.cancelled() => return,
            () = shutdown_token.cancelled() => return,
            () = signals.tools_changed.notified() => {}
        }
        let (Some(link), Some(connection)) = (link.upgrade(), connection.upgrade()) else { return };
        if let Err(problem) = link.refresh_tools(&connection).await {
            tracing::warn!(server = %link.name, "the list of tools is unchanged: {problem}");
        }
        drop((link, connection));
        tokio::select! {
            () = signals.closed.cancelled() => return,
            () = shutdown_token.cancelled() => return,
            () = tokio::time::sleep(RELIST_INTERVAL) => {}
        }
    }
}
