//! Resolves the MCP servers that an agent may use.

use std::sync::Arc;

use brigade_agent::definition::Definition;
use brigade_model::refusal::Refusal;
use brigade_model::work::AgentWork;

use super::mcp_client::McpServers;
use crate::spawn_parent::SpawnParent;

/// Returns the servers of a new agent. At top level these are the requested ones and those of the
/// definition, and each must be configured. A child never gets more than its parent.
pub(super) fn resolve_servers(
    work: &AgentWork,
    definition: &Definition,
    parent: SpawnParent<'_>,
    configured: &McpServers,
) -> Result<Vec<Arc<str>>, Refusal> {
    let defined = definition.mcp_servers.as_ref();
    let named = defined.into_iter().flatten().map(|name| Arc::from(name.as_str()));
    let mut servers: Vec<Arc<str>> = named.chain(work.mcp_servers.iter().cloned()).collect();
    servers.sort();
    servers.dedup();
    match parent {
        SpawnParent::Agent(parent) if servers.is_empty() && defined.is_none() => {
            Ok(parent.mcp_servers.clone())
        }
        SpawnParent::Agent(parent) => {
            servers.retain(|name| parent.mcp_servers.contains(name));
            Ok(servers)
        }
        // A server runs outside of the sandbox, so a sandboxed process could reach through it what
        // the sandbox denies.
        SpawnParent::SandboxedProcess(outer) if !outer.layers.is_empty() && !servers.is_empty() => {
            Err(Refusal::forbidden("a sandboxed process can start no agent that uses MCP servers"))
        }
        SpawnParent::SandboxedProcess(_) | SpawnParent::TopLevel => {
            match servers.iter().find(|name| !configured.has(name)) {
                None => Ok(servers),
                Some(unknown) => Err(unknown_server_refusal(unknown, definition, configured)),
            }
        }
    }
}

fn unknown_server_refusal(name: &str, definition: &Definition, configured: &McpServers) -> Refusal {
    let is_defined = definition.mcp_servers.iter().flatten().any(|one| one == name);
    let source = match is_defined {
        true => format!("the definition {} names", definition.name),
        false => "the request names".to_owned(),
    };
    let known = configured.names().map(|name| &**name).collect::<Vec<_>>().join(", ");
    let known = match known.is_empty() {
        true => "none is configured".to_owned(),
        false => format!("configured are: {known}"),
    };
    Refusal::invalid(format!("{source} the MCP server {name:?}, which is not configured; {known}"))
}
