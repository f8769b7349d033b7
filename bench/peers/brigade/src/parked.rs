//! The memory of parked tasks.

use std::time::Duration;

use brigade::{NewTask, Session};
use peers_harness::{BATCH_TASKS, BoxError, Measured, Stopwatch, WARM_UP_TASKS, resident_bytes};

use crate::memory_runtime::{WAIT_JOB, start_runtime};

pub(crate) async fn resident_memory(count: usize) -> Result<Measured, BoxError> {
    let (_runtime, session) = start_runtime().await?;
    park_tasks(&session, WARM_UP_TASKS).await?;
    let before = resident_bytes()?;
    let watch = Stopwatch::start();
    park_tasks(&session, count).await?;
    let sample = watch.stop();
    let grown = resident_bytes()?.saturating_sub(before);
    Ok(sample.with_resident_bytes(grown).into())
}

/// Spawns tasks in batches. Each batch begins when all tasks of the last one wait.
async fn park_tasks(session: &Session, count: usize) -> Result<(), BoxError> {
    for _ in 0..count / BATCH_TASKS {
        let tasks = (0..BATCH_TASKS).map(|_| NewTask::job(WAIT_JOB, ()));
        for task in session.spawn_all(tasks).await? {
            let task = task?;
            while task.get().await?.state.label() != "waiting" {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
    Ok(())
}
