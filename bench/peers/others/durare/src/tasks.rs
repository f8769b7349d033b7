//! Workflows on the in-memory provider.

use std::sync::Arc;
use std::time::Duration;

use durare::{DurableEngine, InMemoryProvider, SendMessage, WorkflowHandle, WorkflowOptions};
use peers_harness::{BATCH_TASKS, BoxError, Measured, Stopwatch, WARM_UP_TASKS, resident_bytes};

use crate::workflows::{DoNothing, ReceiveMessages, TOPIC};

async fn start_engine() -> Result<DurableEngine, BoxError> {
    Ok(DurableEngine::new(Arc::new(InMemoryProvider::new())).await?)
}

pub(crate) async fn spawn_batch(count: usize) -> Result<Measured, BoxError> {
    let engine = start_engine().await?;
    let watch = Stopwatch::start();
    let mut handles = Vec::with_capacity(BATCH_TASKS);
    let mut remaining = count;
    while remaining > 0 {
        let batch = remaining.min(BATCH_TASKS);
        for _ in 0..batch {
            handles.push(engine.start_with(DoNothing, (), WorkflowOptions::default()).await?);
        }
        for handle in handles.drain(..) {
            handle.result().await?;
        }
        remaining -= batch;
    }
    Ok(watch.stop().into())
}

pub(crate) async fn spawn_await(count: usize) -> Result<Measured, BoxError> {
    let engine = start_engine().await?;
    let watch = Stopwatch::start();
    for _ in 0..count {
        engine.start_with(DoNothing, (), WorkflowOptions::default()).await?.result().await?;
    }
    Ok(watch.stop().into())
}

/// Sends messages in batches. The workflow ends when it has received all of them.
pub(crate) async fn messages(count: usize) -> Result<Measured, BoxError> {
    let engine = start_engine().await?;
    let receiver = engine.start_with(ReceiveMessages, count, WorkflowOptions::default()).await?;
    let watch = Stopwatch::start();
    let numbers: Vec<usize> = (0..count).collect();
    for batch in numbers.chunks(BATCH_TASKS) {
        let batch: Vec<SendMessage<usize>> =
            batch.iter().map(|n| SendMessage::new(receiver.id(), *n, TOPIC)).collect();
        engine.send_bulk(&batch).await?;
    }
    let received = receiver.result().await?;
    let sample = watch.stop();
    assert_eq!(received, count);
    Ok(sample.into())
}

/// Measures workflows that wait for a message.
pub(crate) async fn parked_bytes(count: usize) -> Result<Measured, BoxError> {
    let engine = start_engine().await?;
    let mut handles = park_workflows(&engine, WARM_UP_TASKS).await?;
    let before = resident_bytes()?;
    let watch = Stopwatch::start();
    handles.extend(park_workflows(&engine, count).await?);
    let sample = watch.stop();
    let grown = resident_bytes()?.saturating_sub(before);
    assert_eq!(handles.len(), WARM_UP_TASKS + count);
    Ok(sample.with_resident_bytes(grown).into())
}

/// Starts workflows and returns when each has recorded the deadline of its wait.
async fn park_workflows(
    engine: &DurableEngine,
    count: usize,
) -> Result<Vec<WorkflowHandle<usize>>, BoxError> {
    let mut handles = Vec::with_capacity(count);
    for _ in 0..count {
        handles.push(engine.start_with(ReceiveMessages, 1, WorkflowOptions::default()).await?);
    }
    for handle in &handles {
        while engine.get_workflow_steps(handle.id()).await?.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    Ok(handles)
}
