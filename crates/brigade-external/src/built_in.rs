//! The adapters that Brigade has for well-known agents.

use crate::adapter::{AdapterFault, CliAdapter};

/// The files of the built-in adapters.
const FILES: [&str; 5] = [
    include_str!("../adapters/claude.toml"),
    include_str!("../adapters/codex.toml"),
    include_str!("../adapters/gemini.toml"),
    include_str!("../adapters/opencode.toml"),
    include_str!("../adapters/qwen.toml"),
];

/// Parses the built-in adapters, in the order of their names.
pub fn parse_built_in_adapters() -> Result<Vec<CliAdapter>, AdapterFault> {
    FILES.into_iter().map(CliAdapter::parse).collect()
}
