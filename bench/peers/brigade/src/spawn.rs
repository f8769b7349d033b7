//! No-op tasks in memory.

use brigade::WaitMode;
use peers_harness::{BATCH_TASKS, BoxError, Measured, Stopwatch};

use crate::memory_runtime::{no_op_task, start_runtime};

pub(crate) async fn in_batches(count: usize) -> Result<Measured, BoxError> {
    let (_runtime, session) = start_runtime().await?;
    let watch = Stopwatch::start();
    let mut remaining = count;
    while remaining > 0 {
        let batch = remaining.min(BATCH_TASKS);
        session.spawn_all((0..batch).map(|_| no_op_task())).await?;
        remaining -= batch;
    }
    let results = session.wait_uncollected(WaitMode::All).await?;
    let sample = watch.stop();
    assert_eq!(results.len(), count);
    Ok(sample.into())
}

pub(crate) async fn each_awaited(count: usize) -> Result<Measured, BoxError> {
    let (_runtime, session) = start_runtime().await?;
    let watch = Stopwatch::start();
    for _ in 0..count {
        session.spawn(no_op_task()).await?.wait().await?;
    }
    Ok(watch.stop().into())
}
