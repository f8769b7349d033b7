//! A store with slow commits, which can be unavailable.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brigade_model::call::JournalEntry;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, MessageNo, Owner, Position, RunNo, SessionId, TaskNo, Time};
use brigade_model::message::MessageKeyScope;
use brigade_model::name::{IdempotencyKey, SessionName, TaskName};
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::{MessageKeyMark, MessageRow, SessionRow};
use brigade_store::{
    AcquireResult, Batch, EventPage, EventQuery, ExpectedVersion, LoadedSession, MessagePage,
    MessageQuery, NewRecord, PruneResult, PutRecordResult, Record, RecordKey, RecordPage,
    RecordQuery, RecordStore, RecordVersion, RemoveRecordResult, Retention, RunRow, Store,
    StoreError, StoreFuture, TaskQuery,
};

/// A store around another one. Its commits take time, and it can be unavailable for a while.
#[derive(Debug)]
pub struct SlowStore {
    inner: Arc<dyn Store>,
    /// The number of quick commits that remain, and the duration of each commit after them.
    slow: Mutex<Option<(u32, Duration)>>,
    away: AtomicBool,
}

impl SlowStore {
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, slow: Mutex::default(), away: AtomicBool::new(false) })
    }

    /// Makes each commit take this long, after a number of quick ones.
    pub fn slow_after(&self, quick: u32, pause: Duration) {
        *self.slow.lock().unwrap_or_else(PoisonError::into_inner) = Some((quick, pause));
    }

    /// Makes the store unavailable, or available again. Reads fail too.
    pub fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    fn pass<'a, T: 'a>(&'a self, call: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(async move {
            if self.away.load(Ordering::SeqCst) {
                return Err(StoreError::Unavailable("it is away".into()));
            }
            call.await
        })
    }

    fn pause(&self) -> Option<Duration> {
        let mut slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        let (quick, pause) = (*slow)?;
        *slow = Some((quick.saturating_sub(1), pause));
        (quick == 0).then_some(pause)
    }
}

impl Store for SlowStore {
    fn commit<'a>(&'a self, batch: &'a Batch) -> StoreFuture<'a, Position> {
        Box::pin(async move {
            if let Some(pause) = self.pause() {
                tokio::time::sleep(pause).await;
            }
            let committed = Box::pin(async move { self.inner.commit(batch).await });
            self.pass(committed).await
        })
    }

    fn sessions(&self) -> StoreFuture<'_, Vec<SessionRow>> {
        self.pass(self.inner.sessions())
    }

    fn session(&self, id: SessionId) -> StoreFuture<'_, Option<SessionRow>> {
        self.pass(self.inner.session(id))
    }

    fn session_named<'a>(&'a self, name: &'a SessionName) -> StoreFuture<'a, Option<SessionRow>> {
        self.pass(self.inner.session_named(name))
    }

    fn acquire<'a>(&'a self, lane: Lane, row: &'a SessionRow) -> StoreFuture<'a, AcquireResult> {
        self.pass(self.inner.acquire(lane, row))
    }

    fn load(&self, id: SessionId) -> StoreFuture<'_, Option<LoadedSession>> {
        self.pass(self.inner.load(id))
    }

    fn task(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Option<TaskRow>> {
        self.pass(self.inner.task(id, no))
    }

    fn task_named<'a>(
        &'a self,
        id: SessionId,
        owner: Option<Owner>,
        name: &'a TaskName,
    ) -> StoreFuture<'a, Option<StoredTask>> {
        self.pass(self.inner.task_named(id, owner, name))
    }

    fn tasks<'a>(
        &'a self,
        id: SessionId,
        query: &'a TaskQuery,
    ) -> StoreFuture<'a, Vec<StoredTask>> {
        self.pass(self.inner.tasks(id, query))
    }

    fn journal(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Vec<JournalEntry>> {
        self.pass(self.inner.journal(id, no))
    }

    fn run(&self, id: SessionId, no: TaskNo, run: RunNo) -> StoreFuture<'_, Option<RunRow>> {
        self.pass(self.inner.run(id, no, run))
    }

    fn message(&self, id: SessionId, no: MessageNo) -> StoreFuture<'_, Option<MessageRow>> {
        self.pass(self.inner.message(id, no))
    }

    fn messages<'a>(
        &'a self,
        id: SessionId,
        query: &'a MessageQuery,
    ) -> StoreFuture<'a, MessagePage> {
        self.pass(self.inner.messages(id, query))
    }

    fn message_key<'a>(
        &'a self,
        id: SessionId,
        scope: MessageKeyScope,
        key: &'a IdempotencyKey,
    ) -> StoreFuture<'a, Option<MessageKeyMark>> {
        self.pass(self.inner.message_key(id, scope, key))
    }

    fn events<'a>(&'a self, query: &'a EventQuery) -> StoreFuture<'a, EventPage> {
        self.pass(self.inner.events(query))
    }

    fn refuse_late_commits(&self, lane: Lane) -> StoreFuture<'_, ()> {
        self.pass(self.inner.refuse_late_commits(lane))
    }

    fn open_lane(&self) -> StoreFuture<'_, Lane> {
        self.pass(self.inner.open_lane())
    }

    fn cursor(&self) -> StoreFuture<'_, FeedCursor> {
        self.pass(self.inner.cursor())
    }

    fn prune<'a>(&'a self, retention: &'a Retention, now: Time) -> StoreFuture<'a, PruneResult> {
        self.pass(self.inner.prune(retention, now))
    }
}

impl RecordStore for SlowStore {
    fn record<'a>(&'a self, key: &'a RecordKey, now: Time) -> StoreFuture<'a, Option<Record>> {
        self.pass(self.inner.record(key, now))
    }

    fn records<'a>(&'a self, query: &'a RecordQuery, now: Time) -> StoreFuture<'a, RecordPage> {
        self.pass(self.inner.records(query, now))
    }

    fn put_record<'a>(
        &'a self,
        record: &'a NewRecord,
        expected: ExpectedVersion,
        now: Time,
    ) -> StoreFuture<'a, PutRecordResult> {
        self.pass(self.inner.put_record(record, expected, now))
    }

    fn remove_record<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<RecordVersion>,
        now: Time,
    ) -> StoreFuture<'a, RemoveRecordResult> {
        self.pass(self.inner.remove_record(key, expected, now))
    }

    fn remove_expired_records(&self, now: Time, limit: usize) -> StoreFuture<'_, usize> {
        self.pass(self.inner.remove_expired_records(now, limit))
    }
}
