//! Tests of the built-in tools on real files.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod confined_paths;
mod editing;
mod finding;
mod permissions;
mod protected;
mod reading;
mod support;
mod writing;
