//! The works of the comparison by koda-core: its registry of background agents, and its inference
//! loop with a provider that replies by a script.

mod agents;
mod registry_tasks;
mod scripted_provider;
mod tasks;

use std::process::ExitCode;

use peers_harness::{BoxError, Measured, Work, run_on_worker, run_peer};

fn main() -> ExitCode {
    run_peer("koda", measure)
}

fn measure(work: Work, count: usize) -> Result<Measured, BoxError> {
    run_on_worker(async move {
        match work {
            Work::SpawnBatch => tasks::spawn_batch(count).await,
            Work::SpawnAwait => tasks::spawn_await(count).await,
            Work::StopOne => tasks::stop_one(count).await,
            Work::StopTree => tasks::stop_tree(count).await,
            Work::ParkedBytes => tasks::parked_bytes(count).await,
            Work::Agent => agents::one_after_another(count).await,
            Work::AgentsAtOnce => agents::at_once(count).await,
            Work::Messages => Ok(Measured::Unsupported("background agents have no inbox")),
            Work::Exec => Ok(Measured::Unsupported("its wait for a background process polls")),
            Work::Durable | Work::Steps => {
                Ok(Measured::Unsupported("messages are stored, background agents are not"))
            }
        }
    })
}
