//! Agents with the tools of MCP servers: programs that really run, and die.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use brigade_agent::mcp as brigade_agent_mcp;

mod outside;
#[path = "../../../brigade-agent/src/mcp/tests/scripted.rs"]
mod scripted;
mod stories;
mod support;
