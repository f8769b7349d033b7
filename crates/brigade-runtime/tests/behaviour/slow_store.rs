//! A store with slow commits, which can be unavailable.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade_model::call::JournalEntry;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Epoch, Lane, MessageNo, Owner, Position, RunNo, SessionId, TaskNo, Time};
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

type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

#[derive(Debug)]
pub(crate) struct SlowStore {
    inner: Arc<dyn Store>,
    /// The number of quick commits that remain, and the duration of each commit after them.
    slow: Mutex<Option<(u32, Duration)>>,
    away: AtomicBool,
}

impl SlowStore {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, slow: Mutex::default(), away: AtomicBool::new(false) })
    }

    /// Makes each commit take this long, after a number of quick ones.
    pub(crate) fn slow_after(&self, quick: u32, pause: Duration) {
        *self.slow.lock().unwrap() = Some((quick, pause));
    }

    /// Makes the store unavailable, or available again.
    pub(crate) fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    fn pass<'a, T: 'a>(&'a self, call: Answer<'a, T>) -> Answer<'a, T> {
        Box::pin(async move {
            if self.away.load(Ordering::SeqCst) {
                return Err(StoreError::Unavailable("it is away".into()));
            }
            call.await
        })
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
            let committed = Box::pin(async move { self.inner.commit(batch).await });
            self.pass(committed).await
        })
    }

    fn sessions(&self) -> Answer<'_, Vec<SessionRow>> {
        self.pass(self.inner.sessions())
    }

    fn session(&self, id: SessionId) -> Answer<'_, Option<SessionRow>> {
        self.pass(self.inner.session(id))
    }

    fn session_named<'a>(&'a self, name: &'a SessionName) -> Answer<'a, Option<SessionRow>> {
        self.pass(self.inner.session_named(name))
    }

    fn acquire<'a>(&'a self, row: &'a SessionRow) -> Answer<'a, Option<Epoch>> {
        self.pass(self.inner.acquire(row))
    }

    fn load(&self, id: SessionId) -> Answer<'_, Option<LoadedSession>> {
        self.pass(self.inner.load(id))
    }

    fn task(&self, id: SessionId, no: TaskNo) -> Answer<'_, Option<TaskRow>> {
        self.pass(self.inner.task(id, no))
    }

    fn task_named<'a>(
        &'a self,
        id: SessionId,
        owner: Option<Owner>,
        name: &'a TaskName,
    ) -> Answer<'a, Option<StoredTask>> {
        self.pass(self.inner.task_named(id, owner, name))
    }

    fn tasks<'a>(&'a self, id: SessionId, query: &'a TaskQuery) -> Answer<'a, Vec<StoredTask>> {
        self.pass(self.inner.tasks(id, query))
    }

    fn journal(&self, id: SessionId, no: TaskNo) -> Answer<'_, Vec<JournalEntry>> {
        self.pass(self.inner.journal(id, no))
    }

    fn run(&self, id: SessionId, no: TaskNo, run: RunNo) -> Answer<'_, Option<RunRow>> {
        self.pass(self.inner.run(id, no, run))
    }

    fn message(&self, id: SessionId, no: MessageNo) -> Answer<'_, Option<MessageRow>> {
        self.pass(self.inner.message(id, no))
    }

    fn messages<'a>(&'a self, id: SessionId, query: &'a MessageQuery) -> Answer<'a, MessagePage> {
        self.pass(self.inner.messages(id, query))
    }

    fn message_key<'a>(
        &'a self,
        id: SessionId,
        scope: MessageKeyScope,
        key: &'a IdempotencyKey,
    ) -> Answer<'a, Option<MessageKeyMark>> {
        self.pass(self.inner.message_key(id, scope, key))
    }

    fn events<'a>(&'a self, query: &'a EventQuery) -> Answer<'a, EventPage> {
        self.pass(self.inner.events(query))
    }

    fn open_lane(&self) -> Answer<'_, Lane> {
        self.pass(self.inner.open_lane())
    }

    fn cursor(&self) -> Answer<'_, FeedCursor> {
        self.pass(self.inner.cursor())
    }

    fn prune<'a>(&'a self, retention: &'a Retention, now: Time) -> Answer<'a, PruneResult> {
        self.pass(self.inner.prune(retention, now))
    }
}

impl RecordStore for SlowStore {
    fn record<'a>(&'a self, key: &'a RecordKey, now: Time) -> Answer<'a, Option<Record>> {
        self.pass(self.inner.record(key, now))
    }

    fn records<'a>(&'a self, query: &'a RecordQuery, now: Time) -> Answer<'a, RecordPage> {
        self.pass(self.inner.records(query, now))
    }

    fn put_record<'a>(
        &'a self,
        record: &'a NewRecord,
        expected: ExpectedVersion,
        now: Time,
    ) -> Answer<'a, PutRecordResult> {
        self.pass(self.inner.put_record(record, expected, now))
    }

    fn remove_record<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<RecordVersion>,
        now: Time,
    ) -> Answer<'a, RemoveRecordResult> {
        self.pass(self.inner.remove_record(key, expected, now))
    }

    fn remove_expired_records(&self, now: Time, limit: usize) -> Answer<'_, usize> {
        self.pass(self.inner.remove_expired_records(now, limit))
    }
}
