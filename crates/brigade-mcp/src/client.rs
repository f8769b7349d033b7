//! Tools of MCP servers: programs that are spoken to over their standard streams, and services
//! over HTTP.
//!
//! ```text
//!   agents ──> McpTool ──> Link ──> Connection ──> rmcp ──> Guarded ──> Wire ──> a child process
//!                │          │ one per server        │                  └──────> or HTTP
//!                │          └ made at first use, made again with growing pauses, lists the tools
//!                └ tried again after an outage, or told as "effect unknown", by its effect
//! ```
//!
//! A server is somebody else's program. What it says of itself is bounded before it is kept, its
//! schemas are used only where they are sane, and whatever it does, the agent goes on.
//!
//! - `server`: what a server is, as a configuration has it; `secret`: values by reference.
//! - [`McpServers`]: those of a runtime; `house`: what their programs have in common; `link`: one of them, shared by all agents; `granted`: what
//!   agents of one blueprint have of them.
//! - `connection`: one connection while it lasts; `guard`, `wire`, `child`, `http`, `post`: what it is made of.
//! - `listing`, `naming`: which tools there are; `tool`: a call of one; `result`: what a model is told.

mod bounded_transport;
mod connection;
mod granted_tools;
mod http_post;
mod http_transport;
mod line_transport;
mod mcp_tool;
mod secrets;
mod server_config;
mod server_link;
mod server_processes;
mod servers;
mod stdio_process;
mod tool_list;
mod tool_names;
mod tool_result;

pub use granted_tools::GrantedTools;
pub use secrets::ValueSource;
pub use server_config::{McpServerConfig, McpServerError, McpTimeouts, McpTransport, check_name};
pub use servers::McpServers;

#[cfg(test)]
mod tests;
