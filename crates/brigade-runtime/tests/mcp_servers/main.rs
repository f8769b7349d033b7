//! Agents with the tools of MCP servers: programs that really run, and die.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use brigade_mcp::client as mcp_client;

mod outside;
#[path = "../../../brigade-mcp/src/client/tests/scripted.rs"]
mod scripted;
mod stories;
mod support;
