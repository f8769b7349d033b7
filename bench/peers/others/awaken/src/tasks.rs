//! Spawning, stopping, messages and memory.

use awaken_runtime::extensions::background::{TaskParentContext, TaskResult};
use peers_harness::{
    ALIVE_TASKS, BATCH_TASKS, BoxError, Measured, Stopwatch, TREE_DEPTH, WARM_UP_TASKS,
    resident_bytes,
};
use serde_json::json;

use crate::background::{Background, THREAD, do_nothing, run_until_cancelled};

pub(crate) async fn spawn_batch(count: usize) -> Result<Measured, BoxError> {
    let mut background = Background::start()?;
    let watch = Stopwatch::start();
    let mut remaining = count;
    while remaining > 0 {
        let batch = remaining.min(BATCH_TASKS);
        for _ in 0..batch {
            background.spawn(None, do_nothing).await?;
        }
        background.wait_for_events(batch).await?;
        remaining -= batch;
    }
    Ok(watch.stop().into())
}

pub(crate) async fn spawn_await(count: usize) -> Result<Measured, BoxError> {
    let mut background = Background::start()?;
    let watch = Stopwatch::start();
    for _ in 0..count {
        background.spawn(None, do_nothing).await?;
        background.wait_for_events(1).await?;
    }
    Ok(watch.stop().into())
}

pub(crate) async fn stop_one(count: usize) -> Result<Measured, BoxError> {
    let mut background = Background::start()?;
    let mut tasks = Vec::with_capacity(ALIVE_TASKS);
    for _ in 0..ALIVE_TASKS {
        tasks.push(background.spawn(None, run_until_cancelled).await?);
    }
    background.wait_for_events(ALIVE_TASKS).await?;
    let watch = Stopwatch::start();
    for n in 0..count {
        assert!(background.manager.cancel(&tasks[n * 7 % ALIVE_TASKS]).await);
        background.wait_for_events(1).await?;
    }
    Ok(watch.stop().into())
}

pub(crate) async fn stop_tree(count: usize) -> Result<Measured, BoxError> {
    let mut background = Background::start()?;
    let root = background.spawn(None, run_until_cancelled).await?;
    let mut parent = root.clone();
    for n in 0..count {
        let first_of_chain = n % (TREE_DEPTH - 1) == 0;
        let spawner = if first_of_chain { &root } else { &parent };
        parent = background.spawn(Some(spawner), run_until_cancelled).await?;
    }
    background.wait_for_events(count + 1).await?;
    let watch = Stopwatch::start();
    let cancelled = background.manager.cancel_tree(&root).await;
    background.wait_for_events(count + 1).await?;
    let sample = watch.stop();
    assert_eq!(cancelled, count + 1);
    Ok(sample.into())
}

/// Sends messages to the inbox of a sub-agent. Its end is the event that it received all of them.
pub(crate) async fn messages(count: usize) -> Result<Measured, BoxError> {
    let mut background = Background::start()?;
    let parent = TaskParentContext::default();
    let receiver = background
        .manager
        .spawn_agent(THREAD, None, "Receives.", parent, move |_, _, mut inbox| async move {
            let mut received = 0;
            while received < count && inbox.recv_or_cancel(None).await.is_some() {
                received += 1;
            }
            TaskResult::Success(json!(received))
        })
        .await?;
    let watch = Stopwatch::start();
    for n in 0..count {
        let text = n.to_string();
        background.manager.send_task_inbox_message(&receiver, THREAD, "owner", &text).await?;
    }
    background.wait_for_events(1).await?;
    let sample = watch.stop();
    let summary = background.manager.get(&receiver).await.ok_or("no receiver")?;
    assert_eq!(summary.result, Some(json!(count)));
    Ok(sample.into())
}

pub(crate) async fn parked_bytes(count: usize) -> Result<Measured, BoxError> {
    let mut background = Background::start()?;
    park_tasks(&mut background, WARM_UP_TASKS).await?;
    let before = resident_bytes()?;
    let watch = Stopwatch::start();
    park_tasks(&mut background, count).await?;
    let sample = watch.stop();
    let grown = resident_bytes()?.saturating_sub(before);
    Ok(sample.with_resident_bytes(grown).into())
}

/// Spawns tasks in batches and returns when all of them run.
async fn park_tasks(background: &mut Background, count: usize) -> Result<(), BoxError> {
    for _ in 0..count / BATCH_TASKS {
        for _ in 0..BATCH_TASKS {
            background.spawn(None, run_until_cancelled).await?;
        }
        background.wait_for_events(BATCH_TASKS).await?;
    }
    Ok(())
}
