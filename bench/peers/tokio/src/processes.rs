//! Processes without a supervisor: start one and wait for its end.

use std::process::Command;

use peers_harness::{BoxError, Measured, ProcessTree};

pub(crate) fn run_one_after_another(count: usize) -> Result<Measured, BoxError> {
    let tree = ProcessTree::adopt()?;
    let watch = tree.start_stopwatch();
    for _ in 0..count {
        if !Command::new("true").status()?.success() {
            return Err("`true` failed".into());
        }
    }
    Ok(watch.stop().into())
}
