//! Sandboxed processes that try to get out, on the real kernel.
#![expect(clippy::unwrap_used, reason = "a test fails where something is not as expected")]

mod attack;
mod control_group;
mod file_access;
mod limits;
mod mounts;
mod other_processes;
mod support;
mod system_calls;
