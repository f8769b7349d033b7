//! Stops: of one task, and of a tree.

use std::time::Duration;

use brigade::{ChildTask, JobContext, JobError, JobTask, NewTask, Runtime, Session};
use futures_util::future::try_join_all;
use peers_harness::{ALIVE_TASKS, BATCH_TASKS, BoxError, Measured, Stopwatch, TREE_DEPTH};

use crate::memory_runtime::{running_task, start_runtime};

/// Stops tasks, and waits for the outcome of each before the next stop.
pub(crate) async fn one_by_one(count: usize) -> Result<Measured, BoxError> {
    let (runtime, session) = start_runtime().await?;
    let mut tasks = Vec::with_capacity(ALIVE_TASKS);
    for _ in 0..ALIVE_TASKS / BATCH_TASKS {
        for task in session.spawn_all((0..BATCH_TASKS).map(|_| running_task())).await? {
            tasks.push(task?);
        }
    }
    wait_until_running(&runtime, &session, ALIVE_TASKS).await?;
    let watch = Stopwatch::start();
    for n in 0..count {
        let task = &tasks[n * 7 % ALIVE_TASKS];
        task.stop(None).await?;
        task.wait().await?;
    }
    Ok(watch.stop().into())
}

/// Stops the root of a tree, and waits for the root. Its outcome follows those of its descendants.
pub(crate) async fn whole_tree(count: usize) -> Result<Measured, BoxError> {
    let (runtime, session) = start_runtime().await?;
    let chain_depth = TREE_DEPTH - 1;
    let chains = count / chain_depth;
    let root = NewTask::closure("root", move |ctx: JobContext| async move {
        let chains = (0..chains).map(|_| ctx.spawn(chain(chain_depth)));
        let _chains: Vec<ChildTask<()>> = try_join_all(chains).await?;
        ctx.stop_token().cancelled().await;
        Ok::<_, JobError>(())
    });
    let root = session.spawn(root).await?;
    wait_until_running(&runtime, &session, chains * chain_depth + 1).await?;
    let watch = Stopwatch::start();
    root.stop(None).await?;
    root.wait().await?;
    let sample = watch.stop();
    let operator = runtime.operator_session(session.id()).await?;
    assert!(operator.list().iter().all(|task| !task.row.is_alive()), "a descendant is alive");
    Ok(sample.into())
}

/// Returns a task that spawns the rest of a chain and runs until it is stopped.
fn chain(depth: usize) -> NewTask<JobTask<()>> {
    NewTask::closure("link", move |ctx: JobContext| async move {
        if depth > 1 {
            ctx.spawn(chain(depth - 1)).await?;
        }
        ctx.stop_token().cancelled().await;
        Ok::<_, JobError>(())
    })
}

/// Waits until this number of tasks is running.
async fn wait_until_running(
    runtime: &Runtime,
    session: &Session,
    count: usize,
) -> Result<(), BoxError> {
    let operator = runtime.operator_session(session.id()).await?;
    while operator.list().iter().filter(|task| task.row.state.label() == "running").count() < count
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
