//! Tools for tests of programs that use Brigade. Add this crate to your `dev-dependencies`.
//!
//! A test of a job that sleeps for an hour takes no time:
//!
//! ```
//! use std::time::Duration;
//!
//! use brigade_runtime::{Job, JobContext, JobError};
//! use brigade_testkit::TestRuntime;
//!
//! const BAKE: Job<u32, u32> = Job::new("bake");
//!
//! async fn bake(ctx: JobContext, loaves: u32) -> Result<u32, JobError> {
//!     ctx.sleep(Duration::from_secs(3600)).await?;
//!     Ok(loaves)
//! }
//!
//! // In a test: #[tokio::test(start_paused = true)]
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let test = TestRuntime::new(|builder| builder.job(BAKE, bake)).await;
//! let task = test.session.spawn(BAKE.with(12)).await.unwrap();
//! assert_eq!(task.result().await.unwrap(), 12);
//! # }
//! ```
//!
//! - [`test_runtime`]: [`TestRuntime`] is a runtime on paused time, which returns the events of each
//!   command.
//! - [`cut_everywhere`](mod@cut_everywhere): [`cut_everywhere()`] repeats a test with a crash at every
//!   commit.
//! - [`crash_store`]: [`CrashStore`] fails or crashes at a chosen commit, before or after it is
//!   durable, or holds writes.
//! - [`slow_store`]: [`SlowStore`] delays its commits, and can be unavailable.
//! - [`node_connection`]: [`NodeConnection`] is the connection of one node of a fleet, with faults.
//! - [`clock`]: [`ManualClock`] advances when a test says so; [`PausedClock`] follows tokio's
//!   paused time; [`StoppedTime`] stops it during real input and output.
//!
//! The types of the runtime here are those of the crate `brigade`. The guide `docs/testing.md` has
//! more examples, also for agents.

pub mod clock;
pub mod crash_store;
pub mod cut_everywhere;
pub mod node_connection;
pub mod slow_store;
pub mod test_runtime;

pub use clock::{ManualClock, PausedClock, StoppedTime};
pub use crash_store::{CrashStore, CutMode, CutPoint, HeldWrites};
pub use cut_everywhere::cut_everywhere;
pub use node_connection::{ConnectionCondition, NodeConnection};
pub use slow_store::SlowStore;
pub use test_runtime::{TestRuntime, with_test_loops};
