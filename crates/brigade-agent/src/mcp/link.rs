//! One server, shared by all agents: reached at first use, reached again when it was lost.

use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::guard::Heard;
use super::house::House;
use super::listing::Reported;
use super::server::McpServer;
use super::tool::McpTool;
use crate::tool::Tool;

/// Between two tries, at the least and at the most.
const PAUSE_LEAST: Duration = Duration::from_millis(500);
const PAUSE_MOST: Duration = Duration::from_secs(30);
/// A connection that lasted longer says nothing against the next one.
const LASTING: Duration = Duration::from_secs(10);
/// Between two lists of a server that tells of changes again and again.
const BETWEEN_LISTS: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Link {
    pub(super) name: Arc<str>,
    server: McpServer,
    /// Held while the server is being reached, so that it is reached once for all who wait.
    state: Mutex<State>,
    standing: SyncMutex<Standing>,
    house: House,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Arc<Connection>>,
    /// Tries in a row that led to nothing.
    failures: u32,
    /// Connections in a row that were lost soon.
    losses: u32,
    not_before: Option<Instant>,
    problem: String,
}

/// What is known of a server's tools.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    /// Rises with each change.
    pub(super) version: u64,
    /// None until they have been listed once. What was listed stays while the server is away.
    pub(super) tools: Option<Arc<[Arc<dyn Tool>]>>,
    pub(super) problems: Vec<String>,
}

impl Link {
    pub(super) fn new(name: Arc<str>, server: McpServer, house: House) -> Self {
        let (state, standing) = (Mutex::default(), SyncMutex::default());
        Self { name, server, state, standing, house }
    }

    pub(super) fn standing(&self) -> Standing {
        self.lock().clone()
    }

    pub(super) fn version(&self) -> u64 {
        self.lock().version
    }

    fn lock(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that can be used: the one that there is, or a new one. A server that could not
    /// be reached is left alone for a while, and tried again for as long as patience lasts.
    pub(super) async fn connected(
        self: &Arc<Self>,
        patience: Duration,
    ) -> Result<Arc<Connection>, String> {
        let until = Instant::now() + patience;
        tokio::select! {
            connected = self.connected_by(until) => connected,
            () = self.house.ending.cancelled() => Err("the runtime is leaving".to_owned()),
        }
    }

    async fn connected_by(self: &Arc<Self>, until: Instant) -> Result<Arc<Connection>, String> {
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
            match self.opened().await {
                Ok(connection) => {
                    (state.not_before, state.connection) = (None, Some(connection.clone()));
                    state.failures = 0;
                    return Ok(connection);
                }
                Err(problem) => {
                    self.unreachable(&problem);
                    state.failed(problem);
                }
            }
        }
    }

    async fn opened(self: &Arc<Self>) -> Result<Arc<Connection>, String> {
        let opened = Connection::open(&self.name, &self.server, &self.house).await?;
        let opened = Arc::new(opened);
        self.list(&opened).await?;
        let (link, connection) = (Arc::downgrade(self), Arc::downgrade(&opened));
        let watch = keep_listed(link, connection, opened.heard.clone(), self.house.ending.clone());
        self.house.tasks.spawn(watch);
        Ok(opened)
    }

    /// Hears which tools there are, for the next model call of every agent.
    async fn list(self: &Arc<Self>, connection: &Connection) -> Result<(), String> {
        let listing = timeout(self.server.timeouts.start, connection.list()).await;
        let told = listing.unwrap_or_else(|_| Err("its list of tools does not end".to_owned()))?;
        let reported = Reported::of(&self.name, told, self.server.trusts_hints).await;
        for problem in &reported.problems {
            tracing::warn!(server = %self.name, "{problem}");
        }
        let tool = |listed| -> Arc<dyn Tool> { Arc::new(McpTool::new(self, listed)) };
        let tools = Some(reported.tools.into_iter().map(tool).collect());
        let mut standing = self.lock();
        let version = standing.version + 1;
        *standing = Standing { version, tools, problems: reported.problems };
        Ok(())
    }

    fn unreachable(&self, problem: &str) {
        tracing::warn!(server = %self.name, "an MCP server cannot be reached: {problem}");
        let mut standing = self.lock();
        standing.version += 1;
        standing.problems = vec![problem.to_owned()];
    }

    /// Lets go of the connection. What belongs to it ends with the links.
    pub(super) async fn close(&self) {
        self.state.lock().await.connection = None;
    }
}

impl State {
    /// A connection that was lost soon after it was made counts like one that was not made.
    fn count_loss(&mut self) {
        let Some(lost) = self.connection.take() else { return };
        if lost.opened.elapsed() >= LASTING {
            self.losses = 0;
            return;
        }
        self.failures = self.losses;
        self.losses = self.losses.saturating_add(1);
        self.failed("it was lost soon after it was reached".to_owned());
    }

    fn failed(&mut self, problem: String) {
        let pause = PAUSE_LEAST.saturating_mul(2_u32.saturating_pow(self.failures)).min(PAUSE_MOST);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(Instant::now() + pause);
        self.problem = problem;
    }
}

/// Lists again when a server says that it has other tools, and not without end.
async fn keep_listed(
    link: Weak<Link>,
    connection: Weak<Connection>,
    heard: Arc<Heard>,
    ending: CancellationToken,
) {
    loop {
        tokio::select! {
            () = heard.over.cancelled() => return,
            () = ending.cancelled() => return,
            () = heard.changed.notified() => {}
        }
        let (Some(link), Some(connection)) = (link.upgrade(), connection.upgrade()) else { return };
        if let Err(problem) = link.list(&connection).await {
            tracing::warn!(server = %link.name, "its tools stay as they were: {problem}");
        }
        drop((link, connection));
        tokio::select! {
            () = heard.over.cancelled() => return,
            () = ending.cancelled() => return,
            () = tokio::time::sleep(BETWEEN_LISTS) => {}
        }
    }
}
