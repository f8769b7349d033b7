//! Agents of other vendors in a real runtime, with real processes: stand-ins made from recordings.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod acp;
mod approvals;
mod endings;
mod restarts;
mod support;
mod turns;
