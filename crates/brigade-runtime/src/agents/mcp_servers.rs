//! Which MCP servers an agent may use.

use std::sync::Arc;

use brigade_agent::definition::Definition;
use brigade_mcp::client::McpServers;
use brigade_model::refusal::Refusal;
use brigade_model::work::AgentWork;

use super::blueprint::SpawnParent;

/// At top level those that were asked for and those of the definition, each of which has to be there;
/// below that never more than the parent has.
pub(super) fn resolve_servers(
    work: &AgentWork,
    definition: &Definition,
    parent: SpawnParent<'_>,
    there: &McpServers,
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
        // A server runs outside: with it a confined command would reach what it is kept from.
        SpawnParent::SandboxedProcess(outer) if !outer.layers.is_empty() && !servers.is_empty() => {
            Err(Refusal::forbidden("a confined command can start no agent that uses MCP servers"))
        }
        SpawnParent::SandboxedProcess(_) | SpawnParent::TopLevel => {
            match servers.iter().find(|name| !there.has(name)) {
                None => Ok(servers),
                Some(unknown) => Err(unknown_server_refusal(unknown, definition, there)),
            }
        }
    }
}

fn unknown_server_refusal(name: &str, definition: &Definition, there: &McpServers) -> Refusal {
    let defined = definition.mcp_servers.iter().flatten().any(|one| one == name);
    let who = match defined {
        true => format!("the definition {} names", definition.name),
        false => "there was asked for".to_owned(),
    };
    let known = there.names().map(|name| &**name).collect::<Vec<_>>().join(", ");
    let known = match known.is_empty() {
        true => "none is configured".to_owned(),
        false => format!("there are: {known}"),
    };
    Refusal::invalid(format!("{who} the MCP server {name:?}, which is not there; {known}"))
}
