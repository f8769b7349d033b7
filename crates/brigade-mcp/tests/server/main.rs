//! Tests of the MCP server through its clients: tools, tasks, kills.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod agents;
mod approvals;
mod client_tools;
mod conversations;
mod in_process;
mod interop;
mod keyed_messages;
mod kills;
mod protocol_tasks;
mod raw_messages;
mod readiness;
mod reply_halves;
mod support;
mod tools;
