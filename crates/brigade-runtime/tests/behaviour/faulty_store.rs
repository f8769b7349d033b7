//! A store that can be full, and in which a session can be damaged.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade_model::call::JournalEntry;
use brigade_model::ids::{MessageNo, Owner, Position, RunNo, SessionId, TaskNo, Time};
use brigade_model::message::MessageKeyScope;
use brigade_model::name::{IdempotencyKey, SessionName, TaskName};
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::{MessageKeyMark, MessageRow, SessionRow};
use brigade_store::{
    Batch, BoxFuture, EventPage, EventQuery, ExpectedVersion, LoadedSession, MessagePage,
    MessageQuery, NewRecord, PruneResult, PutRecordResult, Record, RecordKey, RecordPage,
    RecordQuery, RecordStore, RecordVersion, RemoveRecordResult, Retention, RunRow, Store,
    StoreError, TaskQuery,
};
use tokio::sync::watch;

type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    full: AtomicBool,
    refused: AtomicUsize,
    prunes: watch::Sender<usize>,
    damaged: Mutex<Option<SessionId>>,
}

impl FaultyStore {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        let full = AtomicBool::new(false);
        let refused = AtomicUsize::new(0);
        let prunes = watch::channel(0).0;
        Arc::new(Self { inner, full, refused, prunes, damaged: Mutex::default() })
    }

    /// Makes the store refuse commits. It can still be read.
    pub(crate) fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }

    /// Returns the number of refused commits.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    /// Waits until this many prunes were tried.
    pub(crate) async fn wait_prunes(&self, count: usize) {
        let mut prunes = self.prunes.subscribe();
        prunes.wait_for(|prunes| *prunes >= count).await.unwrap();
    }

    /// Returns the number of prunes that were tried.
    pub(crate) fn prunes(&self) -> usize {
        *self.prunes.borrow()
    }

    /// Damages a session: neither it nor a journal of it can be loaded any more.
    pub(crate) fn damage(&self, session: SessionId) {
        *self.damaged.lock().unwrap() = Some(session);
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

    fn sessions(&self) -> Answer<'_, Vec<SessionRow>> {
        self.inner.sessions()
    }

    fn session(&self, id: SessionId) -> Answer<'_, Option<SessionRow>> {
        self.inner.session(id)
    }

    fn session_named<'a>(&'a self, name: &'a SessionName) -> Answer<'a, Option<SessionRow>> {
        self.inner.session_named(name)
    }

    fn load(&self, id: SessionId) -> Answer<'_, Option<LoadedSession>> {
        if *self.damaged.lock().unwrap() == Some(id) {
            return Box::pin(async { Err(StoreError::Corrupt("a task is damaged".into())) });
        }
        self.inner.load(id)
    }

    fn task(&self, id: SessionId, no: TaskNo) -> Answer<'_, Option<TaskRow>> {
        self.inner.task(id, no)
    }

    fn task_named<'a>(
        &'a self,
        id: SessionId,
        owner: Option<Owner>,
        name: &'a TaskName,
    ) -> Answer<'a, Option<StoredTask>> {
        self.inner.task_named(id, owner, name)
    }

    fn tasks<'a>(&'a self, id: SessionId, query: &'a TaskQuery) -> Answer<'a, Vec<StoredTask>> {
        self.inner.tasks(id, query)
    }

    fn journal(&self, id: SessionId, no: TaskNo) -> Answer<'_, Vec<JournalEntry>> {
        if *self.damaged.lock().unwrap() == Some(id) {
            return Box::pin(async { Err(StoreError::Corrupt("a journal is damaged".into())) });
        }
        self.inner.journal(id, no)
    }

    fn run(&self, id: SessionId, no: TaskNo, run: RunNo) -> Answer<'_, Option<RunRow>> {
        self.inner.run(id, no, run)
    }

    fn message(&self, id: SessionId, no: MessageNo) -> Answer<'_, Option<MessageRow>> {
        self.inner.message(id, no)
    }

    fn messages<'a>(&'a self, id: SessionId, query: &'a MessageQuery) -> Answer<'a, MessagePage> {
        self.inner.messages(id, query)
    }

    fn message_key<'a>(
        &'a self,
        id: SessionId,
        scope: MessageKeyScope,
        key: &'a IdempotencyKey,
    ) -> Answer<'a, Option<MessageKeyMark>> {
        self.inner.message_key(id, scope, key)
    }

    fn events<'a>(&'a self, query: &'a EventQuery) -> Answer<'a, EventPage> {
        self.inner.events(query)
    }

    fn last_position(&self) -> Answer<'_, Position> {
        self.inner.last_position()
    }

    fn prune<'a>(&'a self, retention: &'a Retention, now: Time) -> Answer<'a, PruneResult> {
        let is_full = self.full.load(Ordering::SeqCst);
        Box::pin(async move {
            let pruned = match is_full {
                true => Err(StoreError::Unavailable("it is full".into())),
                false => self.inner.prune(retention, now).await,
            };
            self.prunes.send_modify(|count| *count += 1);
            pruned
        })
    }
}

impl RecordStore for FaultyStore {
    fn record<'a>(&'a self, key: &'a RecordKey, now: Time) -> Answer<'a, Option<Record>> {
        self.inner.record(key, now)
    }

    fn records<'a>(&'a self, query: &'a RecordQuery, now: Time) -> Answer<'a, RecordPage> {
        self.inner.records(query, now)
    }

    fn put_record<'a>(
        &'a self,
        record: &'a NewRecord,
        expected: ExpectedVersion,
        now: Time,
    ) -> Answer<'a, PutRecordResult> {
        match self.full.load(Ordering::SeqCst) {
            true => Box::pin(async { Err(StoreError::Unavailable("it is full".into())) }),
            false => self.inner.put_record(record, expected, now),
        }
    }

    fn remove_record<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<RecordVersion>,
        now: Time,
    ) -> Answer<'a, RemoveRecordResult> {
        match self.full.load(Ordering::SeqCst) {
            true => Box::pin(async { Err(StoreError::Unavailable("it is full".into())) }),
            false => self.inner.remove_record(key, expected, now),
        }
    }

    fn remove_expired_records(&self, now: Time, limit: usize) -> Answer<'_, usize> {
        match self.full.load(Ordering::SeqCst) {
            true => Box::pin(async { Err(StoreError::Unavailable("it is full".into())) }),
            false => self.inner.remove_expired_records(now, limit),
        }
    }
}
