//! Tools for tests of programs that use Brigade.
//!
//! - [`clock`]: [`ManualClock`] advances when a test says so; [`PausedClock`] follows tokio's
//!   paused time.
//! - [`crash_store`]: [`CrashStore`] fails or crashes at a chosen commit, before or after it is
//!   durable.
//! - [`test_runtime`]: [`TestRuntime`] is a runtime that returns the events of each command.

pub mod clock;
pub mod crash_store;
pub mod test_runtime;

pub use clock::{ManualClock, PausedClock};
pub use crash_store::{CrashStore, CutMode, CutPoint};
pub use test_runtime::TestRuntime;
