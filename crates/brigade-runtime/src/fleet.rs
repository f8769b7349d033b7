//! A runtime as one of the nodes that share a store.
//!
//! ```text
//! caller ─ input ─> loop ─ holds the session ─> decide, commit, reply
//!                     └─ another node owns it ─> call ─> owner's commit ─> reply ─> caller
//! lease ── renewed ── ... ── over: performers are halted, and the runtime joins again
//! ```
//!
//! In reading order:
//! - [`node_options`]: the settings of a node; [`node_info`]: nodes as people see them.
//! - `node`: the node's shared state; `node_lease`: the time for which it may act, `attempt_lease`: the
//!   lease of one attempt; `fleet_clock`: the clock of the store.
//! - `lease_keeper`, `session_claimer`, `call_server`, `call_client`, `feed_reader`: its background tasks.
//! - `host_client`: requests to the nodes of other hosts; `host_watch`: the hosts of processes that other
//!   nodes started; `host_stop`, `host_push`, `host_ends`: their stops, messages and ends while another node
//!   owns their session; `hosted_processes`: the processes of this host in sessions of other nodes.
//! - `limit_keeper`: the node's part in the limits of providers; `limit_shares`: their division.
//! - `owned_sessions`: the loop's part: claims, releases, and calls of other nodes; `forwarded_inputs`: inputs
//!   for sessions of other nodes; `session_rest`: the sessions that need no owner; `rejoin`: a new join.
//! - `unreadable_sessions`: sessions of newer versions, and damaged ones.
//! - `call_message`: the encoding of calls.

mod attempt_lease;
mod call_client;
mod call_message;
mod call_server;
mod feed_reader;
mod fleet_clock;
mod forwarded_inputs;
#[cfg(feature = "processes")]
mod host_client;
#[cfg(feature = "processes")]
mod host_ends;
#[cfg(feature = "processes")]
mod host_push;
#[cfg(feature = "processes")]
mod host_stop;
mod host_watch;
#[cfg(feature = "processes")]
mod hosted_processes;
mod lease_keeper;
#[cfg(feature = "agents")]
mod limit_keeper;
#[cfg(feature = "agents")]
mod limit_shares;
mod node;
pub mod node_info;
mod node_lease;
pub mod node_options;
mod owned_sessions;
mod rejoin;
mod session_claimer;
mod session_rest;
mod unreadable_sessions;

pub(crate) use attempt_lease::AttemptLease;
pub(crate) use call_client::CallClient;
pub(crate) use call_message::{CallReply, CallRequest};
pub(crate) use feed_reader::refresh_view;
pub(crate) use fleet_clock::FleetClock;
#[cfg(feature = "processes")]
pub(crate) use host_client::HostClient;
#[cfg(feature = "processes")]
pub(crate) use host_watch::{is_same_host, machine_name};
#[cfg(feature = "processes")]
pub(crate) use hosted_processes::claim_hosted_processes;
#[cfg(feature = "agents")]
pub(crate) use limit_keeper::NodeLimits;
pub(crate) use node::{Node, NodeHost};
pub use node_info::NodeInfo;
pub use node_options::NodeOptions;
pub(crate) use owned_sessions::{ClaimedSessions, OwnedSessions};
pub(crate) use rejoin::while_held;
