//! A store that can be full, and in which a session can be damaged.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade_model::call::JournalEntry;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, MessageNo, Owner, Position, RunNo, SessionId, TaskNo, Time};
use brigade_model::message::MessageKeyScope;
use brigade_model::name::{IdempotencyKey, SessionName, TaskName};
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::{MessageKeyMark, MessageRow, SessionRow};
use brigade_store::{
    AcquireResult, Batch, BoxFuture, EventPage, EventQuery, ExpectedVersion, LoadedSession,
    MessagePage, MessageQuery, NewRecord, PruneResult, PutRecordResult, Record, RecordKey,
    RecordPage, RecordQuery, RecordStore, RecordVersion, RemoveRecordResult, Retention, RunRow,
    Store, StoreError, TaskQuery,
};
use tokio::sync::{Barrier, watch};

type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    full: AtomicBool,
    refused: AtomicUsize,
    prunes: watch::Sender<usize>,
    damaged: Mutex<Option<SessionId>>,
    /// What happens between the next commit and its error.
    doubt: Mutex<Option<BoxFuture<'static, ()>>>,
    delays_commit: AtomicBool,
    /// The batch of a failed commit that has not arrived yet.
    late_batch: Mutex<Option<Batch>>,
    /// The commits that wait for each other, and how many of them remain.
    meeting: Mutex<Option<Arc<Barrier>>>,
    meeting_left: AtomicUsize,
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").finish_non_exhaustive()
    }
}

impl FaultyStore {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        let full = AtomicBool::new(false);
        let refused = AtomicUsize::new(0);
        let prunes = watch::channel(0).0;
        Arc::new(Self {
            inner,
            full,
            refused,
            prunes,
            damaged: Mutex::default(),
            doubt: Mutex::default(),
            delays_commit: AtomicBool::new(false),
            late_batch: Mutex::default(),
            meeting: Mutex::default(),
            meeting_left: AtomicUsize::new(0),
        })
    }

    /// Writes the next commit, runs this, and reports an error nevertheless.
    pub(crate) fn doubt_next_commit(&self, meanwhile: impl Future<Output = ()> + Send + 'static) {
        *self.doubt.lock().unwrap() = Some(Box::pin(meanwhile));
    }

    /// Lets the next commit fail and arrive late: after the next read of events, unless late
    /// commits are refused before.
    pub(crate) fn delay_next_commit(&self) {
        self.delays_commit.store(true, Ordering::SeqCst);
    }

    /// Lets the next commits begin only when there are this many.
    pub(crate) fn meet_before_commits(&self, count: usize) {
        *self.meeting.lock().unwrap() = Some(Arc::new(Barrier::new(count)));
        self.meeting_left.store(count, Ordering::SeqCst);
    }

    async fn meet(&self) {
        let meeting = self.meeting.lock().unwrap().clone();
        let left = self
            .meeting_left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if let (Some(meeting), Ok(_)) = (meeting, left) {
            meeting.wait().await;
        }
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
            if self.delays_commit.swap(false, Ordering::SeqCst) {
                *self.late_batch.lock().unwrap() = Some(batch.clone());
                return Err(StoreError::Unavailable("the connection was lost".into()));
            }
            self.meet().await;
            let committed = self.inner.commit(batch).await;
            let doubt = self.doubt.lock().unwrap().take();
            match doubt {
                Some(meanwhile) => {
                    meanwhile.await;
                    Err(StoreError::Unavailable("the connection was lost".into()))
                }
                None => committed,
            }
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

    fn acquire<'a>(&'a self, lane: Lane, row: &'a SessionRow) -> Answer<'a, AcquireResult> {
        self.inner.acquire(lane, row)
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
        Box::pin(async move {
            let page = self.inner.events(query).await;
            let late = self.late_batch.lock().unwrap().take();
            if let Some(batch) = late {
                self.inner.commit(&batch).await?;
            }
            page
        })
    }

    fn refuse_late_commits(&self, lane: Lane) -> Answer<'_, ()> {
        *self.late_batch.lock().unwrap() = None;
        self.inner.refuse_late_commits(lane)
    }

    fn open_lane(&self) -> Answer<'_, Lane> {
        self.inner.open_lane()
    }

    fn cursor(&self) -> Answer<'_, FeedCursor> {
        self.inner.cursor()
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
