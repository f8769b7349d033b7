//! Spawning, stopping and memory.

use std::time::Duration;

use koda_core::bg_agent::{self, BgAgentRegistry, WaitOutcome};
use peers_harness::{
    ALIVE_TASKS, BATCH_TASKS, BoxError, Measured, Stopwatch, TREE_DEPTH, WARM_UP_TASKS,
    resident_bytes,
};
use tokio_util::sync::CancellationToken;

use crate::registry_tasks::{RegistryTask, collect, spawn};

const TIMEOUT: Duration = Duration::from_secs(60);

async fn run_until_cancelled(cancel: CancellationToken) {
    cancel.cancelled().await;
}

pub(crate) async fn spawn_batch(count: usize) -> Result<Measured, BoxError> {
    let registry = bg_agent::new_shared();
    let watch = Stopwatch::start();
    let mut remaining = count;
    while remaining > 0 {
        let batch = remaining.min(BATCH_TASKS);
        for _ in 0..batch {
            spawn(&registry, None, |_| async {});
        }
        collect(&registry, batch).await?;
        remaining -= batch;
    }
    Ok(watch.stop().into())
}

pub(crate) async fn spawn_await(count: usize) -> Result<Measured, BoxError> {
    let registry = bg_agent::new_shared();
    let watch = Stopwatch::start();
    for _ in 0..count {
        let task = spawn(&registry, None, |_| async {});
        wait_for_end(&registry, &task).await?;
    }
    Ok(watch.stop().into())
}

pub(crate) async fn stop_one(count: usize) -> Result<Measured, BoxError> {
    let registry = bg_agent::new_shared();
    let tasks: Vec<RegistryTask> =
        (0..ALIVE_TASKS).map(|_| spawn(&registry, None, run_until_cancelled)).collect();
    wait_until_running(&registry, ALIVE_TASKS).await;
    let watch = Stopwatch::start();
    for n in 0..count {
        let task = &tasks[n * 7 % ALIVE_TASKS];
        assert!(registry.cancel(task.id));
        wait_for_end(&registry, task).await?;
    }
    Ok(watch.stop().into())
}

pub(crate) async fn stop_tree(count: usize) -> Result<Measured, BoxError> {
    let registry = bg_agent::new_shared();
    let root = spawn(&registry, None, run_until_cancelled);
    let mut parent = root.clone();
    for n in 0..count {
        let first_of_chain = n % (TREE_DEPTH - 1) == 0;
        let spawner = if first_of_chain { &root } else { &parent };
        parent = spawn(&registry, Some(spawner), run_until_cancelled);
    }
    wait_until_running(&registry, count + 1).await;
    let watch = Stopwatch::start();
    registry.cancel(root.id);
    collect(&registry, count + 1).await?;
    Ok(watch.stop().into())
}

pub(crate) async fn parked_bytes(count: usize) -> Result<Measured, BoxError> {
    let registry = bg_agent::new_shared();
    let mut alive = 0;
    let mut park = async |count: usize| {
        for _ in 0..count / BATCH_TASKS {
            for _ in 0..BATCH_TASKS {
                spawn(&registry, None, run_until_cancelled);
            }
            alive += BATCH_TASKS;
            wait_until_running(&registry, BATCH_TASKS).await;
        }
    };
    park(WARM_UP_TASKS).await;
    let before = resident_bytes()?;
    let watch = Stopwatch::start();
    park(count).await;
    let sample = watch.stop();
    let grown = resident_bytes()?.saturating_sub(before);
    assert_eq!(registry.pending_count(), alive);
    Ok(sample.with_resident_bytes(grown).into())
}

async fn wait_for_end(registry: &BgAgentRegistry, task: &RegistryTask) -> Result<(), BoxError> {
    match registry.wait_for_completion(task.id, None, TIMEOUT).await {
        WaitOutcome::Completed(_) => Ok(()),
        other => Err(format!("task {}: {other:?}", task.id).into()),
    }
}

/// Waits for this number of status events: each task reports that it runs.
async fn wait_until_running(registry: &BgAgentRegistry, count: usize) {
    let mut running = 0;
    while running < count {
        tokio::task::yield_now().await;
        running += registry.drain_status_events().len();
    }
}
