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

/// The time that shutdown waits for processes to end. They are killed before that.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// All MCP servers, each with one connection for all agents. Dropping it ends the server processes.
#[derive(Debug, Default)]
pub struct McpServers {
    links: BTreeMap<Arc<str>, Arc<ServerLink>>,
    processes: ServerProcesses,
    _shutdown_guard: Option<DropGuard>,
}

impl McpServers {
    /// Creates the servers without connecting to them.
    pub fn new(
        servers: impl IntoIterator<Item = (String, McpServerConfig)>,
    ) -> Result<Self, McpServerError> {
        Self::build(servers, None)
    }

    /// Creates the servers with a directory for the pid files of their processes. Kills
    /// processes that a killed runtime recorded there.
    pub fn with_pid_registry(
        servers: impl IntoIterator<Item = (String, McpServerConfig)>,
        directory: PathBuf,
    ) -> Result<Self, McpServerError> {
        Self::build(servers, Some(directory))
    }

    fn build(
        servers: impl IntoIterator<Item = (String, McpServerConfig)>,
        directory: Option<PathBuf>,
    ) -> Result<Self, McpServerError> {
        let pid_registry = directory.and_then(|directory| match PidRegistry::open(directory) {
            Ok(registry) => Some(Arc::new(registry)),
            Err(error) => {
                tracing::warn!(
                    "MCP servers of a killed runtime cannot be found and ended: {error}"
                );
                None
            }
        });
        let processes = ServerProcesses { pid_registry, ..ServerProcesses::default() };
        let mut links = BTreeMap::new();
        for (name, server) in servers {
            check_name(&name)?;
            let server_error = |problem| McpServerError { name: name.clone(), problem };
            server.check().map_err(server_error)?;
            let name: Arc<str> = name.into();
            let link = ServerLink::new(name.clone(), server, processes.clone());
            links.insert(name, Arc::new(link));
        }
        let shutdown_guard = processes.shutdown_token.clone().drop_guard();
        Ok(Self { links, processes, _shutdown_guard: Some(shutdown_guard) })
    }

    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.links.keys()
    }

    pub fn has(&self, name: &str) -> bool {
        self.links.contains_key(name)
    }

    /// Returns the tools of these servers that the permissions allow.
    pub fn grant_tools(
        &self,
        names: &[Arc<str>],
        permissions: &Permissions,
    ) -> Option<Arc<GrantedTools>> {
        let names = names.iter().filter(|name| allows_any_tool(permissions, name));
        let mut links = Vec::new();
        let mut missing = Vec::new();
        for name in names {
            match self.links.get(name) {
                Some(link) => links.push(link.clone()),
                None => missing.push(name.clone()),
            }
        }
        let is_empty = links.is_empty() && missing.is_empty();
        (!is_empty).then(|| Arc::new(GrantedTools::new(links, missing, permissions.clone())))
    }

    /// Connects to a server and returns the names of its tools and the problems with them.
    pub async fn list_tools(&self, name: &str) -> Result<(Vec<Arc<str>>, Vec<String>), String> {
        let link = self.links.get(name).ok_or_else(|| format!("there is no server {name:?}"))?;
        link.connect(CLOSE_TIMEOUT).await?;
        let catalog = link.catalog();
        let tools = catalog.tools.unwrap_or_default();
        let names = tools.iter().map(|tool| tool.spec().name.clone()).collect();
        Ok((names, catalog.problems))
    }

    /// Ends all connections and waits for the processes to end.
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
            tracing::warn!("an MCP server did not end in time");
        }
    }
}
