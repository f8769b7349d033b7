//! The client side of MCP, for agents that use the tools of MCP servers.

use std::sync::Arc;

use brigade_agent::ToolSource;
use brigade_agent::permission::Permissions;

pub(super) use brigade_mcp::client::{McpServerConfig, McpServerError, McpServers, check_name};

/// Returns the tools of these servers that the permissions allow.
pub(super) fn grant_tools(
    servers: &McpServers,
    names: &[Arc<str>],
    permissions: &Permissions,
) -> Option<Arc<dyn ToolSource>> {
    let tools = servers.grant_tools(names, permissions)?;
    Some(tools)
}
