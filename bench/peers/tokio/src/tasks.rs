//! Spawning, stopping, messages and memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use peers_harness::{
    ALIVE_TASKS, BATCH_TASKS, BoxError, Measured, Stopwatch, TREE_DEPTH, WARM_UP_TASKS,
    resident_bytes,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Status {
    Running,
    Ended,
}

/// The status of each task.
#[derive(Clone, Debug, Default)]
struct StatusTable(Arc<Mutex<HashMap<u64, watch::Sender<Status>>>>);

impl StatusTable {
    fn insert(&self, id: u64) {
        self.0.lock().expect("no panic").insert(id, watch::channel(Status::Running).0);
    }

    fn end(&self, id: u64) {
        if let Some(status) = self.0.lock().expect("no panic").get(&id) {
            status.send_replace(Status::Ended);
        }
    }

    fn assert_all_ended(&self) {
        let table = self.0.lock().expect("no panic");
        assert!(table.values().all(|status| *status.borrow() == Status::Ended));
    }
}

pub(crate) async fn spawn_batch(count: usize) -> Result<Measured, BoxError> {
    let table = StatusTable::default();
    let mut tasks = JoinSet::new();
    let watch = Stopwatch::start();
    let ids: Vec<u64> = (0..count as u64).collect();
    for batch in ids.chunks(BATCH_TASKS) {
        for id in batch.iter().copied() {
            table.insert(id);
            let table = table.clone();
            tasks.spawn(async move { table.end(id) });
        }
        tokio::task::yield_now().await;
    }
    while tasks.join_next().await.is_some() {}
    let sample = watch.stop();
    table.assert_all_ended();
    Ok(sample.into())
}

pub(crate) async fn spawn_await(count: usize) -> Result<Measured, BoxError> {
    let table = StatusTable::default();
    let mut tasks = JoinSet::new();
    let watch = Stopwatch::start();
    for id in 0..count as u64 {
        table.insert(id);
        let table = table.clone();
        tasks.spawn(async move { table.end(id) });
        tasks.join_next().await;
    }
    let sample = watch.stop();
    table.assert_all_ended();
    Ok(sample.into())
}

/// Cancels tasks of a table. Each cancelled task reports its end before the next is cancelled.
pub(crate) async fn stop_one(count: usize) -> Result<Measured, BoxError> {
    let mut table = HashMap::new();
    let mut tasks = JoinSet::new();
    for id in 0..ALIVE_TASKS {
        let token = CancellationToken::new();
        let (ended_sender, ended) = oneshot::channel();
        table.insert(id, (token.clone(), ended));
        tasks.spawn(async move {
            token.cancelled().await;
            let _ = ended_sender.send(());
        });
    }
    tokio::task::yield_now().await;
    let watch = Stopwatch::start();
    for n in 0..count {
        let (token, ended) = table.remove(&(n * 7 % ALIVE_TASKS)).ok_or("a task of the table")?;
        token.cancel();
        ended.await?;
    }
    Ok(watch.stop().into())
}

/// Cancels the root of chains of tokens, with a task for each token.
pub(crate) async fn stop_tree(count: usize) -> Result<Measured, BoxError> {
    let root = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let mut parent = root.clone();
    for n in 0..count {
        let depth = n % (TREE_DEPTH - 1);
        let token = if depth == 0 { root.child_token() } else { parent.child_token() };
        parent = token.clone();
        tasks.spawn(async move { token.cancelled().await });
    }
    tokio::task::yield_now().await;
    let watch = Stopwatch::start();
    root.cancel();
    while tasks.join_next().await.is_some() {}
    Ok(watch.stop().into())
}

pub(crate) async fn messages(count: usize) -> Result<Measured, BoxError> {
    let (sender, mut inbox) = mpsc::unbounded_channel::<usize>();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut received = 0;
        while received < count && inbox.recv().await.is_some() {
            received += 1;
        }
        received
    });
    let watch = Stopwatch::start();
    for n in 0..count {
        sender.send(n)?;
    }
    let received = tasks.join_next().await.ok_or("a receiver")??;
    let sample = watch.stop();
    assert_eq!(received, count);
    Ok(sample.into())
}

pub(crate) async fn parked_bytes(count: usize) -> Result<Measured, BoxError> {
    let mut parked = ParkedTasks::default();
    parked.add(WARM_UP_TASKS).await;
    let before = resident_bytes()?;
    let watch = Stopwatch::start();
    parked.add(count).await;
    let sample = watch.stop();
    let grown = resident_bytes()?.saturating_sub(before);
    assert_eq!(parked.table.len(), WARM_UP_TASKS + count);
    Ok(sample.with_resident_bytes(grown).into())
}

/// Tasks that wait for a change of their status.
#[derive(Debug, Default)]
struct ParkedTasks {
    table: HashMap<usize, watch::Sender<Status>>,
    tasks: JoinSet<bool>,
}

impl ParkedTasks {
    /// Spawns more tasks, in batches, and returns when all of them wait.
    async fn add(&mut self, count: usize) {
        for _ in 0..count / BATCH_TASKS {
            let (parked_sender, mut parked) = mpsc::unbounded_channel::<()>();
            for _ in 0..BATCH_TASKS {
                let (status, mut changed) = watch::channel(Status::Running);
                self.table.insert(self.table.len(), status);
                let parked_sender = parked_sender.clone();
                self.tasks.spawn(async move {
                    drop(parked_sender);
                    changed.changed().await.is_ok()
                });
            }
            drop(parked_sender);
            parked.recv().await;
        }
    }
}
