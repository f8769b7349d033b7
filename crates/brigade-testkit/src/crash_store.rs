//! A store that lets its user down at a chosen commit.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use brigade_model::call::JournalEntry;
use brigade_model::ids::{MessageNo, Owner, Position, RunNo, SessionId, TaskNo, Time};
use brigade_model::name::{SessionName, TaskName};
use brigade_model::task::TaskRow;
use brigade_model::task_tree::{MessageRow, SessionRow};
use brigade_store::{
    Batch, BoxFuture, EventPage, EventQuery, LoadedSession, PruneResult, Retention, RunRow, Store,
    StoreError, TaskQuery,
};
use tokio::sync::Notify;

/// Where to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutPoint {
    /// The commit, counted from zero.
    pub commit: u64,
    /// Whether that commit reaches the disk first.
    pub durable: bool,
    pub mode: CutMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutMode {
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
    cut: Option<CutPoint>,
    commits: AtomicU64,
    crashed: AtomicBool,
    signal: Notify,
}

impl CrashStore {
    pub fn new(inner: Arc<dyn Store>, cut: Option<CutPoint>) -> Arc<Self> {
        let (commits, crashed) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { inner, cut, commits, crashed, signal: Notify::new() })
    }

    /// How many commits there were.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// Returns when the crash has happened.
    pub async fn wait_crashed(&self) {
        loop {
            let signal = self.signal.notified();
            if self.crashed.load(Ordering::SeqCst) {
                return;
            }
            signal.await;
        }
    }

    async fn commit_or_cut(&self, batch: &Batch) -> Result<Position, StoreError> {
        let number = self.commits.fetch_add(1, Ordering::SeqCst);
        let Some(cut) = self.cut.filter(|cut| cut.commit == number) else {
            return self.inner.commit(batch).await;
        };
        if cut.durable {
            self.inner.commit(batch).await?;
        }
        match cut.mode {
            CutMode::Fail => Err(StoreError::Unavailable("cut by the test".into())),
            CutMode::Crash => {
                self.crashed.store(true, Ordering::SeqCst);
                self.signal.notify_waiters();
                pending().await
            }
        }
    }

    /// Passes a call on, unless everything has stopped.
    fn pass_through<'a, T: 'a>(
        &'a self,
        call: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        if self.crashed.load(Ordering::SeqCst) { Box::pin(pending()) } else { call }
    }
}

impl Store for CrashStore {
    fn commit<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Position, StoreError>> {
        self.pass_through(Box::pin(self.commit_or_cut(batch)))
    }

    fn sessions(&self) -> BoxFuture<'_, Result<Vec<SessionRow>, StoreError>> {
        self.pass_through(self.inner.sessions())
    }

    fn session(&self, id: SessionId) -> BoxFuture<'_, Result<Option<SessionRow>, StoreError>> {
        self.pass_through(self.inner.session(id))
    }

    fn session_named<'a>(
        &'a self,
        name: &'a SessionName,
    ) -> BoxFuture<'a, Result<Option<SessionRow>, StoreError>> {
        self.pass_through(self.inner.session_named(name))
    }

    fn load(&self, id: SessionId) -> BoxFuture<'_, Result<Option<LoadedSession>, StoreError>> {
        self.pass_through(self.inner.load(id))
    }

    fn task(
        &self,
        id: SessionId,
        no: TaskNo,
    ) -> BoxFuture<'_, Result<Option<TaskRow>, StoreError>> {
        self.pass_through(self.inner.task(id, no))
    }

    fn task_named<'a>(
        &'a self,
        id: SessionId,
        owner: Option<Owner>,
        name: &'a TaskName,
    ) -> BoxFuture<'a, Result<Option<(TaskNo, TaskRow)>, StoreError>> {
        self.pass_through(self.inner.task_named(id, owner, name))
    }

    fn tasks<'a>(
        &'a self,
        id: SessionId,
        query: &'a TaskQuery,
    ) -> BoxFuture<'a, Result<Vec<(TaskNo, TaskRow)>, StoreError>> {
        self.pass_through(self.inner.tasks(id, query))
    }

    fn journal(
        &self,
        id: SessionId,
        no: TaskNo,
    ) -> BoxFuture<'_, Result<Vec<JournalEntry>, StoreError>> {
        self.pass_through(self.inner.journal(id, no))
    }

    fn run(
        &self,
        id: SessionId,
        no: TaskNo,
        run: RunNo,
    ) -> BoxFuture<'_, Result<Option<RunRow>, StoreError>> {
        self.pass_through(self.inner.run(id, no, run))
    }

    fn message(
        &self,
        id: SessionId,
        no: MessageNo,
    ) -> BoxFuture<'_, Result<Option<MessageRow>, StoreError>> {
        self.pass_through(self.inner.message(id, no))
    }

    fn events<'a>(&'a self, query: &'a EventQuery) -> BoxFuture<'a, Result<EventPage, StoreError>> {
        self.pass_through(self.inner.events(query))
    }

    fn last_position(&self) -> BoxFuture<'_, Result<Position, StoreError>> {
        self.pass_through(self.inner.last_position())
    }

    fn prune<'a>(
        &'a self,
        retention: &'a Retention,
        now: Time,
    ) -> BoxFuture<'a, Result<PruneResult, StoreError>> {
        self.pass_through(self.inner.prune(retention, now))
    }
}
