//! The Model Context Protocol: the only crate that knows it.
//!
//! - [`client`]: tools of MCP servers, for agents.

pub mod client;
