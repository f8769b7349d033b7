//! A runtime that is built without MCP: no server can be configured.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use brigade_agent::ToolSource;
use brigade_agent::permission::Permissions;

/// The configuration of a server, of which there is none.
#[derive(Clone, Debug)]
pub(crate) enum McpServerConfig {}

#[derive(Debug, Default)]
pub(super) struct McpServers;

impl McpServers {
    pub(super) fn new(_: BTreeMap<String, McpServerConfig>) -> Result<Self, Infallible> {
        Ok(Self)
    }

    pub(super) fn with_pid_registry(
        _: BTreeMap<String, McpServerConfig>,
        _: PathBuf,
    ) -> Result<Self, Infallible> {
        Ok(Self)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        std::iter::empty()
    }

    pub(super) fn has(&self, _: &str) -> bool {
        false
    }

    pub(super) async fn close(&self) {}
}

pub(super) fn check_name(_: &str) -> Result<(), Infallible> {
    Ok(())
}

pub(super) fn grant_tools(
    _: &McpServers,
    _: &[Arc<str>],
    _: &Permissions,
) -> Option<Arc<dyn ToolSource>> {
    None
}
