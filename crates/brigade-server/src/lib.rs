//! Brigade's daemon: one per state directory.
//!
//! ```text
//!  command line, MCP server                      one daemon per state directory
//!       └─ DaemonConnection ─ Unix socket, JSON ─┐
//!  browser, program, MCP client                  ├─ Daemon ─ RequestContext ─ Runtime
//!       └─ HTTP ─────────────────────────────────┘
//! ```
//!
//! Clients store nothing: all state is in the daemon's store. The protocol of the socket, its client
//! and the types of the HTTP API are in `brigade-protocol`. Modules in reading order:
//!
//! - [`daemon`], `bound_socket`, `shutdown_handle`: the service, its socket and its shutdown.
//! - [`store_id`]: the id of the store, by which a daemon knows its own.
//! - `client_connection`, `admission`: one client of the socket, and bounds on clients.
//! - `request_context`, `request_handler`, `requests`: the services that a handler uses, the trait
//!   of a handler, and the handlers, one file each.
//! - [`http`]: the HTTP API and the dashboard, on the same handlers.
//! - `conversations`: the conversations of MCP clients. `fleet_view`: nodes and their sessions.
//! - [`notifications`]: calls of the operator's commands for outcomes, questions and approvals.
//! - [`task_lookup`]: a task as clients name it. [`trust_store`]: the definitions that the operator
//!   trusts. [`external_programs`]: the agents of other vendors.

mod admission;
mod bound_socket;
mod client_connection;
mod conversations;
pub mod daemon;
pub mod external_programs;
mod fleet_view;
pub mod http;
pub mod notifications;
mod request_context;
mod request_handler;
mod requests;
mod shutdown_handle;
pub mod store_id;
pub mod task_lookup;
pub mod trust_store;

pub use daemon::{Daemon, DaemonOptions};
pub use external_programs::ExternalPrograms;
pub use request_context::RequestContext;
pub use shutdown_handle::ShutdownHandle;
pub use trust_store::TrustStore;
