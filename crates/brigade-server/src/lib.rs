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

pub mod addresses;
mod admission;
pub mod ask;
mod bound_socket;
pub mod client;
mod connection;
mod conversations;
pub mod daemon;
pub mod daemon_lock;
mod desk;
pub mod info;
mod lines;
pub mod mcp;
pub mod operator_key;
pub mod places;
pub mod requests;
pub mod start;
pub mod trust;
pub mod wire;

pub use client::{Client, ClientError};
pub use daemon::{Daemon, DaemonOptions};
pub use desk::{Desk, Target};
pub use info::{LimitsAbove, TaskInfo};
pub use places::Places;
pub use trust::TrustStore;
