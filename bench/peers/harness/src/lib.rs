//! The command line and the clocks that all peers share.
//!
//! ```text
//! peer WORK COUNT  ->  {"peer":..,"work":..,"count":..,"wall_ns":..,"cpu_ns":..}
//! ```
//!
//! 1. [`Work`]: the works of the comparison and their counts.
//! 2. [`Stopwatch`] and [`Sample`]: the measured part of a work.
//! 3. [`run_peer`]: the `main` of a peer.

mod memory;
mod peer;
mod sample;
mod work;

pub use memory::resident_bytes;
pub use peer::{BoxError, Measured, PeerReport, run_on_worker, run_peer};
pub use sample::{Sample, Stopwatch};
pub use work::{
    ALIVE_TASKS, BATCH_TASKS, IN_FLIGHT, STEPS_PER_TASK, TREE_DEPTH, WARM_UP_TASKS, Work,
};
