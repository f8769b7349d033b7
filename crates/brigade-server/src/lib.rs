//! Brigade's daemon, and whoever speaks to it.
//!
//! ```text
//!  command line   MCP bridge                       one daemon per state folder
//!       │             │                             ┌──────────────────────────┐
//!       └── Client ───┴── Unix socket, JSON lines ──┤ Daemon ─ Desk ─ Runtime  │
//!                                                   └──────────────────────────┘
//! ```
//!
//! Clients are disposable: everything that matters is in the daemon's store. Reading order:
//! [`wire`] (what is said), [`requests`] (each question with its answer, a file each), [`ask`] and
//! `desk` (how they meet), [`daemon`], [`daemon_lock`] and `bound_socket`, `connection`, `admission` and [`operator_key`] (who serves, and
//! whom), [`client`] and [`start`] (who
//! asks, and how a daemon comes to be), [`places`] (where it all is), [`mcp`] (the daemon as tools for
//! coding agents), [`trust`] (the definitions that the operator trusts).

mod admission;
mod bound_socket;
mod bounded_line_reader;
pub mod call;
mod client_connection;
mod conversations;
pub mod daemon;
pub mod daemon_connection;
pub mod daemon_launcher;
pub mod daemon_lock;
pub mod frames;
pub mod mcp;
pub mod operator_key;
mod request_context;
pub mod requests;
pub mod state_dir;
pub mod task_info;
pub mod task_lookup;
pub mod trust_store;

pub use daemon::{Daemon, DaemonOptions};
pub use daemon_connection::{ClientError, DaemonConnection};
pub use request_context::{RequestContext, TaskTarget};
pub use state_dir::StateDir;
pub use task_info::{InheritedLimits, TaskInfo};
pub use trust_store::TrustStore;
