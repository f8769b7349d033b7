//! The agents of other vendors that Brigade knows.

use std::sync::Arc;

use crate::acp::AcpAgent;
use crate::adapter::{AdapterFault, CliAdapter};
use crate::external_agent::ExternalAgent;

/// The files of the built-in adapters.
const ADAPTER_FILES: [&str; 5] = [
    include_str!("../adapters/claude.toml"),
    include_str!("../adapters/codex.toml"),
    include_str!("../adapters/gemini.toml"),
    include_str!("../adapters/opencode.toml"),
    include_str!("../adapters/qwen.toml"),
];

/// The files of the built-in ACP agents.
const ACP_FILES: [&str; 5] = [
    include_str!("../adapters/claude-acp.toml"),
    include_str!("../adapters/codex-acp.toml"),
    include_str!("../adapters/gemini-acp.toml"),
    include_str!("../adapters/opencode-acp.toml"),
    include_str!("../adapters/qwen-acp.toml"),
];

/// Parses all built-in agents: the adapters, then the ACP agents.
pub fn parse_built_in_agents() -> Result<Vec<Arc<dyn ExternalAgent>>, AdapterFault> {
    let mut agents: Vec<Arc<dyn ExternalAgent>> = Vec::new();
    for adapter in parse_built_in_adapters()? {
        agents.push(Arc::new(adapter));
    }
    for agent in parse_built_in_acp_agents()? {
        agents.push(Arc::new(agent));
    }
    Ok(agents)
}

/// Parses the built-in adapters, in the order of their names.
pub fn parse_built_in_adapters() -> Result<Vec<CliAdapter>, AdapterFault> {
    ADAPTER_FILES.into_iter().map(CliAdapter::parse).collect()
}

/// Parses the built-in ACP agents, in the order of their names.
pub fn parse_built_in_acp_agents() -> Result<Vec<AcpAgent>, AdapterFault> {
    ACP_FILES.into_iter().map(AcpAgent::parse).collect()
}
