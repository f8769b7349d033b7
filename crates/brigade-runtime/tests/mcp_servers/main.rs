//! Agents with tools of MCP servers, which are real processes that may die.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use brigade_mcp::client as mcp_client;

mod interop;
#[path = "../../../brigade-mcp/src/client/tests/scripted.rs"]
mod scripted;
mod stories;
mod support;
