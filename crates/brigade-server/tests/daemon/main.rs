//! The daemon as its clients see it, both in this process.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod closed;
mod conversations;
mod frozen_frames;
mod long;
mod pages;
mod runs;
mod slow;
mod support;
mod versions;
