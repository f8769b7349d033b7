//! The bridge as its clients see it: the tools, the tasks, what is killed in the middle.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod agents;
mod approvals;
mod client_tools;
mod conversations;
mod halves;
mod outside;
mod rough;
mod stories;
mod support;
mod survival;
mod tasks;
