//! A store that lets its user down at a chosen commit.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use brigade_model::call::Entry;
use brigade_model::ids::{MessageNo, Owner, Position, RunNo, TaskNo, Time, TreeId};
use brigade_model::name::{Name, SessionName};
use brigade_model::task::TaskRow;
use brigade_model::tree::{MessageRow, TreeRow};
use brigade_store::{
    Batch, BoxFuture, EventPage, EventQuery, LoadedTree, Pruned, Retention, RunRow, Store,
    StoreError, TaskQuery,
};
use tokio::sync::Notify;

/// Where to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The commit, counted from zero.
    pub commit: u64,
    /// Whether that commit reaches the disk first.
    pub durable: bool,
    pub how: CutHow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutHow {
    /// The commit returns an error; the store works on.
    Fail,
    /// Nothing returns any more, as in a process that is gone. Whoever waits for
    /// [`CrashStore::crashed`] drops everything and opens the store anew.
    Crash,
}

/// Wraps a store and counts its commits.
#[derive(Debug)]
pub struct CrashStore {
    inner: Arc<dyn Store>,
    cut: Option<Cut>,
    commits: AtomicU64,
    crashed: AtomicBool,
    signal: Notify,
}

impl CrashStore {
    pub fn new(inner: Arc<dyn Store>, cut: Option<Cut>) -> Arc<Self> {
        let (commits, crashed) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { inner, cut, commits, crashed, signal: Notify::new() })
    }

    /// How many commits there were.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// Returns when the crash has happened.
    pub async fn crashed(&self) {
        loop {
            let signal = self.signal.notified();
            if self.crashed.load(Ordering::SeqCst) {
                return;
            }
            signal.await;
        }
    }

    async fn cut_at(&self, batch: &Batch) -> Result<Position, StoreError> {
        let number = self.commits.fetch_add(1, Ordering::SeqCst);
        let Some(cut) = self.cut.filter(|cut| cut.commit == number) else {
            return self.inner.commit(batch).await;
        };
        if cut.durable {
            self.inner.commit(batch).await?;
        }
        match cut.how {
            CutHow::Fail => Err(StoreError::Unavailable("cut by the test".into())),
            CutHow::Crash => {
                self.crashed.store(true, Ordering::SeqCst);
                self.signal.notify_waiters();
                pending().await
            }
        }
    }

    /// Passes a call on, unless everything has stopped.
    fn pass<'a, T: 'a>(
        &'a self,
        call: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        if self.crashed.load(Ordering::SeqCst) { Box::pin(pending()) } else { call }
    }
}

impl Store for CrashStore {
    fn commit<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Position, StoreError>> {
        self.pass(Box::pin(self.cut_at(batch)))
    }

    fn trees(&self) -> BoxFuture<'_, Result<Vec<TreeRow>, StoreError>> {
        self.pass(self.inner.trees())
    }

    fn tree(&self, id: TreeId) -> BoxFuture<'_, Result<Option<TreeRow>, StoreError>> {
        self.pass(self.inner.tree(id))
    }

    fn tree_named<'a>(
        &'a self,
        name: &'a SessionName,
    ) -> BoxFuture<'a, Result<Option<TreeRow>, StoreError>> {
        self.pass(self.inner.tree_named(name))
    }

    fn load(&self, id: TreeId) -> BoxFuture<'_, Result<Option<LoadedTree>, StoreError>> {
        self.pass(self.inner.load(id))
    }

    fn task(&self, id: TreeId, no: TaskNo) -> BoxFuture<'_, Result<Option<TaskRow>, StoreError>> {
        self.pass(self.inner.task(id, no))
    }

    fn task_named<'a>(
        &'a self,
        id: TreeId,
        owner: Option<Owner>,
        name: &'a Name,
    ) -> BoxFuture<'a, Result<Option<(TaskNo, TaskRow)>, StoreError>> {
        self.pass(self.inner.task_named(id, owner, name))
    }

    fn tasks<'a>(
        &'a self,
        id: TreeId,
        query: &'a TaskQuery,
    ) -> BoxFuture<'a, Result<Vec<(TaskNo, TaskRow)>, StoreError>> {
        self.pass(self.inner.tasks(id, query))
    }

    fn journal(&self, id: TreeId, no: TaskNo) -> BoxFuture<'_, Result<Vec<Entry>, StoreError>> {
        self.pass(self.inner.journal(id, no))
    }

    fn run(
        &self,
        id: TreeId,
        no: TaskNo,
        run: RunNo,
    ) -> BoxFuture<'_, Result<Option<RunRow>, StoreError>> {
        self.pass(self.inner.run(id, no, run))
    }

    fn message(
        &self,
        id: TreeId,
        no: MessageNo,
    ) -> BoxFuture<'_, Result<Option<MessageRow>, StoreError>> {
        self.pass(self.inner.message(id, no))
    }

    fn events<'a>(&'a self, query: &'a EventQuery) -> BoxFuture<'a, Result<EventPage, StoreError>> {
        self.pass(self.inner.events(query))
    }

    fn last_position(&self) -> BoxFuture<'_, Result<Position, StoreError>> {
        self.pass(self.inner.last_position())
    }

    fn prune<'a>(
        &'a self,
        retention: &'a Retention,
        now: Time,
    ) -> BoxFuture<'a, Result<Pruned, StoreError>> {
        self.pass(self.inner.prune(retention, now))
    }
}
