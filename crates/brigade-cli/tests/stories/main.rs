//! Stories of the `brigade` binary: real processes and daemons, with a state directory for each
//! story.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

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
mod sandboxed;
mod send;
mod socket;
mod stop;
mod story_env;
mod telemetry;
mod terminal;
mod trust;
mod wait;
mod within;
mod workspaces;
