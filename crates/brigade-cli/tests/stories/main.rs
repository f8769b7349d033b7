//! The `brigade` binary as people use it: real commands, real daemons, a state folder for each story.

#![expect(clippy::unwrap_used, reason = "a test fails where something is not as expected")]

mod addresses;
mod agents;
mod agents_seen;
mod agents_steered;
mod agents_wrong;
mod approvals;
mod bad_input;
mod budgets;
mod client_tools;
mod clients;
mod collector;
mod confined;
mod crash;
mod cut_off;
mod daemon;
mod deadlines;
mod exec;
mod files;
mod guides;
mod identity;
mod input_bytes;
mod inside;
mod kitchen;
mod languages;
mod long;
mod look;
mod lossless;
mod mcp_conversations;
mod mcp_guide;
mod mcp_servers;
mod no_threads;
mod offers;
mod private;
mod real_model;
mod send;
mod socket;
mod stop;
mod telemetry;
mod terminal;
mod trust;
mod wait;
mod within;
mod workspaces;
