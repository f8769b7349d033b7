//! Commands that are kept to something, with real commands that try to get out.
#![expect(clippy::unwrap_used, reason = "a test fails where something is not as expected")]

mod attack;
mod group;
mod limits;
mod mounts;
mod others;
mod reach;
mod support;
mod talk;
