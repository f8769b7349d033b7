//! Brigade's daemon and its clients.
//!
//! ```text
//!  command line   MCP server                     one daemon per state directory
//!       │             │                          ┌───────────────────────────────────┐
//!       └─ DaemonConnection ─ Unix socket, JSON ─┤ Daemon ─ RequestContext ─ Runtime │
//!                                                └───────────────────────────────────┘
//! ```
//!
//! Clients store nothing: all state is in the daemon's store. Modules in reading order:
//!
//! - [`frames`]: the protocol. [`requests`]: each request with its reply, one file each.
//! - [`call`], `request_context`: the trait of a request, and the services that a handler uses.
//! - [`daemon`], [`daemon_lock`], `bound_socket`: the service, its lock and its socket.
//! - `client_connection`, `admission`, [`operator_key`]: one client, bounds on clients, the secret.
//! - `conversations`: the conversations of MCP clients.
//! - [`http`]: the HTTP API and the dashboard, on the same handlers.
//! - [`daemon_connection`], [`daemon_launcher`]: the client's side, which starts a daemon if
//!   needed.
//! - [`state_dir`]: the files of a daemon. [`trust_store`]: the definitions that the operator
//!   trusts.
//! - [`task_info`], [`task_lookup`]: a task as clients see it and as they name it.
//! - [`mcp`]: the MCP server for coding agents.

mod admission;
mod bound_socket;
mod client_connection;
mod conversations;
pub mod daemon;
pub mod http;
mod request_context;
mod request_handler;
mod requests;
mod shutdown_handle;
pub mod task_lookup;
pub mod trust_store;

pub use daemon::{Daemon, DaemonOptions};
pub use request_context::RequestContext;
pub use shutdown_handle::ShutdownHandle;
pub use trust_store::TrustStore;
