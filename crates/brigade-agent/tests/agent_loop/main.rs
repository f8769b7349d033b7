//! The loop by itself, with a host, a model and tools that are made of paper.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod compaction;
mod paper;
mod plugins;
mod spending;
mod state;
mod turns;
