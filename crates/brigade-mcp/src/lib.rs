//! The Model Context Protocol: the only crate that knows it.
//!
//! - [`client`]: tools of MCP servers, for agents.
//! - [`server`]: Brigade as an MCP server, for coding agents.
//! - `bounded_lines`: messages as lines, for both.

mod bounded_lines;
pub mod client;
pub mod server;
