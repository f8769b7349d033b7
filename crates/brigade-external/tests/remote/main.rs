//! Remote agents over A2A in a real runtime, with a stand-in of the remote side.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod fake_agent;
mod stories;
