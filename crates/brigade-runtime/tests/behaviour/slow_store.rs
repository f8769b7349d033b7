//! A store whose commits take a while.

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
pub(crate) struct SlowStore {
    inner: Arc<dyn Store>,
    /// How many more commits are quick, and how long one takes after them.
    slow: Mutex<Option<(u32, Duration)>>,
}

impl SlowStore {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, slow: Mutex::default() })
    }

    /// After so many quick commits each takes this long.
    pub(crate) fn slow_after(&self, quick: u32, pause: Duration) {
        *self.slow.lock().unwrap() = Some((quick, pause));
    }

    fn pause(&self) -> Option<Duration> {
        let mut slow = self.slow.lock().unwrap();
        let (quick, pause) = (*slow)?;
        *slow = Some((quick.saturating_sub(1), pause));
        (quick == 0).then_some(pause)
    }
}

impl Store for SlowStore {
    fn commit<'a>(&'a self, batch: &'a Batch) -> Answer<'a, Position> {
        Box::pin(async move {
            if let Some(pause) = self.pause() {
                tokio::time::sleep(pause).await;
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
