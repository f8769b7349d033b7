//! For tests of programs that use Brigade.
//!
//! - [`clock`]: [`ManualClock`] moves when told; [`PausedClock`] follows tokio's paused time.
//! - [`crash`]: [`CrashStore`] fails or "crashes" at the n-th commit, before or after it is durable.
//! - [`test_runtime`]: [`TestRuntime`], a runtime of which each command can be looked at alone.

pub mod clock;
pub mod crash_store;
pub mod test_runtime;

pub use clock::{ManualClock, PausedClock};
pub use crash_store::{CrashStore, CutMode, CutPoint};
pub use test_runtime::TestRuntime;
