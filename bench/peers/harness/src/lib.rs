//! The command line and the clocks that all peers share.
//!
//! ```text
//! peer WORK COUNT  ->  {"peer":..,"work":..,"count":..,"wall_ns":..,"cpu_ns":..}
//! ```
//!
//! 1. [`Work`]: the works of the comparison and their counts.
//! 2. [`Stopwatch`] and [`Sample`]: the measured part of a work.
//! 3. [`ProcessTree`]: the same for a peer that consists of several processes.
//! 4. [`run_peer`]: the `main` of a peer.

mod memory;
mod peer;
mod process_tree;
mod sample;
mod work;

pub use memory::resident_bytes;
pub use peer::{BoxError, Measured, PeerReport, run_on_worker, run_peer};
pub use process_tree::{ProcessTree, TreeStopwatch};
pub use sample::{Sample, Stopwatch};
pub use work::{
    ALIVE_TASKS, BATCH_TASKS, BRIGADE_VARIABLE, IN_FLIGHT, RUN_LIMIT, STEPS_PER_TASK, TREE_DEPTH,
    WARM_UP_TASKS, Work,
};
