//! Workflows on SQLite, with durare's own settings: WAL and `synchronous = NORMAL`.

use std::future::Future;

use durare::{DurableEngine, WorkflowOptions};
use futures_util::future::try_join_all;
use peers_harness::{BoxError, IN_FLIGHT, Measured, STEPS_PER_TASK, Stopwatch};
use tempfile::TempDir;

use crate::workflows::{DoNothing, RecordSteps};

/// Opens an engine on a file in a directory that is removed at the end.
async fn open_engine() -> Result<(DurableEngine, TempDir), BoxError> {
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite:{}?mode=rwc", dir.path().join("peers.db").display());
    let engine = DurableEngine::connect(&url).await?.build().await?;
    Ok((engine, dir))
}

pub(crate) async fn start_to_result(count: usize) -> Result<Measured, BoxError> {
    let (engine, _dir) = open_engine().await?;
    let watch = Stopwatch::start();
    run_in_flight(count, || async {
        engine.start_with(DoNothing, (), WorkflowOptions::default()).await?.result().await?;
        Ok(())
    })
    .await?;
    Ok(watch.stop().into())
}

pub(crate) async fn five_steps(count: usize) -> Result<Measured, BoxError> {
    let (engine, _dir) = open_engine().await?;
    let watch = Stopwatch::start();
    run_in_flight(count, || async {
        let handle = engine.start_with(RecordSteps, (), WorkflowOptions::default()).await?;
        assert_eq!(handle.result().await?, STEPS_PER_TASK as u64);
        Ok(())
    })
    .await?;
    Ok(watch.stop().into())
}

/// Runs COUNT futures, with a fixed number of them at any time.
async fn run_in_flight<F, Fut>(count: usize, run: F) -> Result<(), BoxError>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<(), BoxError>>,
{
    let lanes = (0..IN_FLIGHT).map(|lane| {
        let run = &run;
        async move {
            for _ in (lane..count).step_by(IN_FLIGHT) {
                run().await?;
            }
            Ok::<_, BoxError>(())
        }
    });
    try_join_all(lanes).await?;
    Ok(())
}
