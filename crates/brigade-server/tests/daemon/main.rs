//! Tests of the daemon through its protocol, with daemon and clients in this process.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod closed_sessions;
mod conversations;
mod drains;
mod earlier_runs;
mod frozen_frames;
mod keyed_messages;
mod long_lines;
mod nodes;
mod slow_clients;
mod support;
mod task_pages;
mod versions;
