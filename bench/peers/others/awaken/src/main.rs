//! The works of the comparison by awaken-runtime: its manager of background tasks, and its agent
//! runtime with a model that replies by a script.

mod agents;
mod background;
mod tasks;

use std::process::ExitCode;

use peers_harness::{BoxError, Measured, Work, run_on_worker, run_peer};

fn main() -> ExitCode {
    run_peer("awaken", measure)
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
            Work::Exec => Ok(Measured::Unsupported("background tasks are futures")),
            Work::Durable | Work::Steps => {
                Ok(Measured::Unsupported("the runtime has no store of tasks on SQLite"))
            }
        }
    })
}
