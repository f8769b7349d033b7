//! Tools of MCP servers: local programs over their standard streams, and services over HTTP.
//!
//! ```text
//! agents ─> McpTool ─> ServerLink ─> McpConnection ─> rmcp ─> BoundedTransport ─> LineTransport
//!             │           │                                            └────────> or HTTP
//!             │           └ one per server: connects when needed, lists the tools
//!             └ repeats an interrupted call or reports "effect unknown", by the tool's effect
//! ```
//!
//! A server is foreign code. Its data is bounded before it is stored, its schemas are used only if
//! they are valid, and no failure of a server stops the agent.
//!
//! - `server_config`: the configuration of a server; `secrets`: values by reference, and redaction.
//! - [`McpServers`]: the servers of a runtime; `server_processes`: supervision of their processes;
//!   `server_link`: one server, shared by all agents; `granted_tools`: the tools that agents of one
//!   blueprint may use.
//! - `connection`: one connection; `bounded_transport`, `line_transport`, `stdio_process`,
//!   `http_transport`, `http_post`: its parts.
//! - `tool_list`, `tool_names`: the listed tools and their names; `mcp_tool`: a call;
//!   `tool_result`: the text for the model.

mod bounded_transport;
mod connection;
mod granted_tools;
mod http_post;
mod http_transport;
mod line_transport;
mod mcp_tool;
mod server_config;
mod server_link;
mod server_processes;
mod servers;
mod stdio_process;
mod tool_list;
mod tool_names;
mod tool_result;
mod value_source;

pub use granted_tools::GrantedTools;
pub use server_config::{McpServerConfig, McpServerError, McpTimeouts, McpTransport, check_name};
pub use servers::McpServers;
pub use value_source::ValueSource;

#[cfg(test)]
mod tests;
