//! The MCP servers of a runtime.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::DropGuard;

use super::granted_tools::{GrantedTools, allows_any_tool};
use super::server_config::{McpServerConfig, McpServerError, check_name};
use super::server_link::ServerLink;
use super::server_processes::{PidRegistry, ServerProcesses};
use brigade_agent::permission::Permissions;

/// How long leaving waits for programs to end: they are killed before that.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// All servers that there are, each with one connection for all agents. When they are dropped, the
/// programs among them end.
#[derive(Debug, Default)]
pub struct McpServers {
    links: BTreeMap<Arc<str>, Arc<ServerLink>>,
    processes: ServerProcesses,
    _shutdown_guard: Option<DropGuard>,
}

impl McpServers {
    /// Nothing is reached yet.
    pub fn new(
        servers: impl IntoIterator<Item = (String, McpServerConfig)>,
    ) -> Result<Self, McpServerError> {
        Self::build(servers, None)
    }

    /// The same, with a folder where programs are written down while they run. Those that stand there
    /// from before are ended: their runtime was killed.
    pub fn with_pid_registry(
        servers: impl IntoIterator<Item = (String, McpServerConfig)>,
        folder: PathBuf,
    ) -> Result<Self, McpServerError> {
        Self::build(servers, Some(folder))
    }

    fn build(
        servers: impl IntoIterator<Item = (String, McpServerConfig)>,
        folder: Option<PathBuf>,
    ) -> Result<Self, McpServerError> {
        let book = folder.and_then(|folder| match PidRegistry::open(folder) {
            Ok(book) => Some(Arc::new(book)),
            Err(error) => {
                tracing::warn!("MCP servers that a killed runtime leaves will stay: {error}");
                None
            }
        });
        let house = ServerProcesses { pid_registry: book, ..ServerProcesses::default() };
        let mut links = BTreeMap::new();
        for (name, server) in servers {
            check_name(&name)?;
            let wrong = |problem| McpServerError { name: name.clone(), problem };
            server.check().map_err(wrong)?;
            let name: Arc<str> = name.into();
            let link = ServerLink::new(name.clone(), server, house.clone());
            links.insert(name, Arc::new(link));
        }
        let _end = Some(house.shutdown_token.clone().drop_guard());
        Ok(Self { links, processes: house, _shutdown_guard: _end })
    }

    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.links.keys()
    }

    pub fn has(&self, name: &str) -> bool {
        self.links.contains_key(name)
    }

    /// What agents have of these servers, with these permissions.
    pub fn grant_tools(
        &self,
        names: &[Arc<str>],
        permissions: &Permissions,
    ) -> Option<Arc<GrantedTools>> {
        let names = names.iter().filter(|name| allows_any_tool(permissions, name));
        let (mut links, mut missing) = (Vec::new(), Vec::new());
        for name in names {
            match self.links.get(name) {
                Some(link) => links.push(link.clone()),
                None => missing.push(name.clone()),
            }
        }
        let is_empty = links.is_empty() && missing.is_empty();
        (!is_empty).then(|| Arc::new(GrantedTools::new(links, missing, permissions.clone())))
    }

    /// Reaches a server and says which tools it has, and what is wrong with them.
    pub async fn list_tools(&self, name: &str) -> Result<(Vec<Arc<str>>, Vec<String>), String> {
        let link = self.links.get(name).ok_or_else(|| format!("there is no server {name:?}"))?;
        link.connect(CLOSE_TIMEOUT).await?;
        let standing = link.catalog();
        let tools = standing.tools.unwrap_or_default();
        let names = tools.iter().map(|tool| tool.spec().name.clone()).collect();
        Ok((names, standing.problems))
    }

    /// Ends all connections, and waits until the programs have ended.
    pub async fn close(&self) {
        self.processes.shutdown_token.cancel();
        let closing = async {
            for link in self.links.values() {
                link.close().await;
            }
            self.processes.tasks.close();
            self.processes.tasks.wait().await;
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, closing).await.is_err() {
            tracing::warn!("an MCP server has not ended in time");
        }
    }
}
