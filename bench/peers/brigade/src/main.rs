//! The works of the comparison by Brigade, on the memory store or on SQLite.

mod agents;
mod durable;
mod exec;
mod memory_runtime;
mod messages;
mod parked;
mod spawn;
mod stop;

use std::process::ExitCode;

use peers_harness::{BoxError, Measured, Work, run_on_worker, run_peer};

fn main() -> ExitCode {
    run_peer("brigade", measure)
}

fn measure(work: Work, count: usize) -> Result<Measured, BoxError> {
    run_on_worker(async move {
        match work {
            Work::SpawnBatch => spawn::in_batches(count).await,
            Work::SpawnAwait => spawn::each_awaited(count).await,
            Work::StopOne => stop::one_by_one(count).await,
            Work::StopTree => stop::whole_tree(count).await,
            Work::Messages => messages::to_one_task(count).await,
            Work::ParkedBytes => parked::resident_memory(count).await,
            Work::Durable => durable::spawn_to_collected(count).await,
            Work::Steps => durable::five_steps(count).await,
            Work::Agent => agents::one_after_another(count).await,
            Work::Exec => exec::one_after_another(count),
            Work::AgentsAtOnce => agents::at_once(count).await,
        }
    })
}
