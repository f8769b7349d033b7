//! A store that can be full, and of which a tree can be damaged.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade_model::call::Entry;
use brigade_model::ids::{MessageNo, Owner, Position, RunNo, TaskNo, Time, TreeId};
use brigade_model::name::{Name, SessionName};
use brigade_model::task::TaskRow;
use brigade_model::tree::{MessageRow, TreeRow};
use brigade_store::{
    Batch, BoxFuture, EventPage, EventQuery, LoadedTree, Pruned, Retention, RunRow, Store,
    StoreError, TaskQuery,
};

type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    full: AtomicBool,
    refused: AtomicUsize,
    damaged: Mutex<Option<TreeId>>,
}

impl FaultyStore {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        let (full, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
        Arc::new(Self { inner, full, refused, damaged: Mutex::default() })
    }

    /// While it is full it is read, not written.
    pub(crate) fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }

    /// How many commits it had no room for.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    /// From now on neither this tree nor a journal of it can be loaded.
    pub(crate) fn damage(&self, tree: TreeId) {
        *self.damaged.lock().unwrap() = Some(tree);
    }
}

impl Store for FaultyStore {
    fn commit<'a>(&'a self, batch: &'a Batch) -> Answer<'a, Position> {
        Box::pin(async move {
            if self.full.load(Ordering::SeqCst) {
                self.refused.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
                return Err(StoreError::Unavailable("it is full".into()));
            }
            self.inner.commit(batch).await
        })
    }

    fn trees(&self) -> Answer<'_, Vec<TreeRow>> {
        self.inner.trees()
    }

    fn tree(&self, id: TreeId) -> Answer<'_, Option<TreeRow>> {
        self.inner.tree(id)
    }

    fn tree_named<'a>(&'a self, name: &'a SessionName) -> Answer<'a, Option<TreeRow>> {
        self.inner.tree_named(name)
    }

    fn load(&self, id: TreeId) -> Answer<'_, Option<LoadedTree>> {
        if *self.damaged.lock().unwrap() == Some(id) {
            return Box::pin(async { Err(StoreError::Corrupt("a task is damaged".into())) });
        }
        self.inner.load(id)
    }

    fn task(&self, id: TreeId, no: TaskNo) -> Answer<'_, Option<TaskRow>> {
        self.inner.task(id, no)
    }

    fn task_named<'a>(
        &'a self,
        id: TreeId,
        owner: Option<Owner>,
        name: &'a Name,
    ) -> Answer<'a, Option<(TaskNo, TaskRow)>> {
        self.inner.task_named(id, owner, name)
    }

    fn tasks<'a>(&'a self, id: TreeId, query: &'a TaskQuery) -> Answer<'a, Vec<(TaskNo, TaskRow)>> {
        self.inner.tasks(id, query)
    }

    fn journal(&self, id: TreeId, no: TaskNo) -> Answer<'_, Vec<Entry>> {
        if *self.damaged.lock().unwrap() == Some(id) {
            return Box::pin(async { Err(StoreError::Corrupt("a journal is damaged".into())) });
        }
        self.inner.journal(id, no)
    }

    fn run(&self, id: TreeId, no: TaskNo, run: RunNo) -> Answer<'_, Option<RunRow>> {
        self.inner.run(id, no, run)
    }

    fn message(&self, id: TreeId, no: MessageNo) -> Answer<'_, Option<MessageRow>> {
        self.inner.message(id, no)
    }

    fn events<'a>(&'a self, query: &'a EventQuery) -> Answer<'a, EventPage> {
        self.inner.events(query)
    }

    fn last_position(&self) -> Answer<'_, Position> {
        self.inner.last_position()
    }

    fn prune<'a>(&'a self, retention: &'a Retention, now: Time) -> Answer<'a, Pruned> {
        self.inner.prune(retention, now)
    }
}
