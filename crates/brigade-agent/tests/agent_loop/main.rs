//! The agent loop alone, with a fake host, model and tools.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod compaction;
mod fakes;
mod function_tools;
mod plugins;
mod spending;
mod state;
mod steps;
