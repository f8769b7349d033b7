//! The works of the comparison by durare, on its in-memory provider or on SQLite.

mod durable;
mod tasks;
mod workflows;

use std::process::ExitCode;

use peers_harness::{BoxError, Measured, Work, run_on_worker, run_peer};

fn main() -> ExitCode {
    run_peer("durare", measure)
}

fn measure(work: Work, count: usize) -> Result<Measured, BoxError> {
    run_on_worker(async move {
        match work {
            Work::SpawnBatch => tasks::spawn_batch(count).await,
            Work::SpawnAwait => tasks::spawn_await(count).await,
            Work::Messages => tasks::messages(count).await,
            Work::ParkedBytes => tasks::parked_bytes(count).await,
            Work::Durable => durable::start_to_result(count).await,
            Work::Steps => durable::five_steps(count).await,
            Work::StopOne => Ok(Measured::Unsupported(
                "a running workflow polls for its cancellation, every 500 ms",
            )),
            Work::StopTree => Ok(Measured::Unsupported("a cancel does not reach child workflows")),
            Work::Exec => Ok(Measured::Unsupported("workflows are futures")),
            Work::Agent | Work::AgentsAtOnce => Ok(Measured::Unsupported("there are no agents")),
        }
    })
}
