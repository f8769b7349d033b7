//! The works of the comparison by plain tokio: no durability, no scope, no queue, no feed. A table
//! holds the status of each task, the least that a program needs to list and stop its tasks.

mod agents;
mod processes;
mod tasks;

use std::process::ExitCode;

use peers_harness::{BoxError, Measured, Work, run_on_worker, run_peer};

fn main() -> ExitCode {
    run_peer("tokio", measure)
}

fn measure(work: Work, count: usize) -> Result<Measured, BoxError> {
    run_on_worker(async move {
        match work {
            Work::SpawnBatch => tasks::spawn_batch(count).await,
            Work::SpawnAwait => tasks::spawn_await(count).await,
            Work::StopOne => tasks::stop_one(count).await,
            Work::StopTree => tasks::stop_tree(count).await,
            Work::Messages => tasks::messages(count).await,
            Work::ParkedBytes => tasks::parked_bytes(count).await,
            Work::Agent => agents::one_after_another(count).await,
            Work::AgentsAtOnce => agents::at_once(count).await,
            Work::Exec => processes::run_one_after_another(count),
            Work::Durable | Work::Steps => Ok(Measured::Unsupported("nothing is stored")),
        }
    })
}
