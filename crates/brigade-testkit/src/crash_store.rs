//! A store that fails or crashes at a chosen commit or write of a record.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
use tokio::sync::{Notify, watch};

use crate::clock::StoppedTime;

/// The commit at which a [`CrashStore`] fails or crashes. A put and a removal of a record count as
/// commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutPoint {
    /// The number of the commit, from zero.
    pub commit: u64,
    /// If true, the commit is written before the cut.
    pub durable: bool,
    pub mode: CutMode,
}

/// The effect of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutMode {
    /// The commit returns an error, and the store continues to work.
    Fail,
    /// No call returns any more, as in a killed process. The test waits with
    /// [`CrashStore::wait_crashed`], drops everything and opens the store again.
    Crash,
}

/// A store around another one that counts commits and cuts at one of them.
#[derive(Debug)]
pub struct CrashStore {
    inner: Arc<dyn Store>,
    cut: Option<CutPoint>,
    time: TimeDuringCalls,
    commits: AtomicU64,
    crashed: AtomicBool,
    signal: Notify,
    commit_hold: watch::Sender<WriteHold>,
    put_hold: watch::Sender<WriteHold>,
}

#[derive(Debug, Default)]
struct WriteHold {
    is_active: bool,
    held_count: usize,
}

/// A hold of writes of a [`CrashStore`], until the value is dropped.
#[derive(Debug)]
pub struct HeldWrites {
    hold: watch::Sender<WriteHold>,
}

impl HeldWrites {
    fn begin(hold: &watch::Sender<WriteHold>) -> Self {
        hold.send_modify(|hold| hold.is_active = true);
        Self { hold: hold.clone() }
    }

    /// Waits until a write is held.
    pub async fn wait_held(&self) {
        // The hold has the sender, so there is no error.
        let _ = self.hold.subscribe().wait_for(|hold| hold.held_count > 0).await;
    }
}

impl Drop for HeldWrites {
    fn drop(&mut self) {
        self.hold.send_modify(|hold| *hold = WriteHold::default());
    }
}

impl CrashStore {
    pub fn new(inner: Arc<dyn Store>, cut: Option<CutPoint>) -> Arc<Self> {
        Self::with_time(inner, cut, TimeDuringCalls::MayPass)
    }

    /// Returns a store around one that waits for real input and output. Paused time would pass
    /// meanwhile, because all tasks are idle, so each call stops it.
    pub fn around_real_io(inner: Arc<dyn Store>, cut: Option<CutPoint>) -> Arc<Self> {
        Self::with_time(inner, cut, TimeDuringCalls::Stops)
    }

    fn with_time(inner: Arc<dyn Store>, cut: Option<CutPoint>, time: TimeDuringCalls) -> Arc<Self> {
        Arc::new(Self {
            inner,
            cut,
            time,
            commits: AtomicU64::new(0),
            crashed: AtomicBool::new(false),
            signal: Notify::new(),
            commit_hold: watch::Sender::default(),
            put_hold: watch::Sender::default(),
        })
    }

    /// Holds the commits that begin from now on. Reads and records continue.
    pub fn hold_commits(&self) -> HeldWrites {
        HeldWrites::begin(&self.commit_hold)
    }

    /// Holds the puts of records that begin from now on.
    pub fn hold_puts(&self) -> HeldWrites {
        HeldWrites::begin(&self.put_hold)
    }

    /// Returns the number of commits so far.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// Waits for the crash.
    pub async fn wait_crashed(&self) {
        loop {
            let signal = self.signal.notified();
            if self.crashed.load(Ordering::SeqCst) {
                return;
            }
            signal.await;
        }
    }

    /// Makes a write, or cuts at it.
    async fn write_or_cut<'a, T>(
        &'a self,
        write: impl FnOnce() -> StoreFuture<'a, T> + Send,
    ) -> Result<T, StoreError> {
        let number = self.commits.fetch_add(1, Ordering::SeqCst);
        let Some(cut) = self.cut.filter(|cut| cut.commit == number) else {
            return write().await;
        };
        if cut.durable {
            write().await?;
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

    /// Forwards a call, or never returns after the crash.
    fn pass_through<'a, T: 'a>(&'a self, call: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        if self.crashed.load(Ordering::SeqCst) {
            return Box::pin(pending());
        }
        match self.time {
            TimeDuringCalls::MayPass => call,
            TimeDuringCalls::Stops => Box::pin(async move {
                let _stopped = StoppedTime::begin();
                call.await
            }),
        }
    }
}

/// Paused time during a call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeDuringCalls {
    MayPass,
    Stops,
}

async fn wait_while_held(hold: &watch::Sender<WriteHold>) {
    if !hold.borrow().is_active {
        return;
    }
    hold.send_modify(|hold| hold.held_count += 1);
    let _ = hold.subscribe().wait_for(|hold| !hold.is_active).await;
}

impl Store for CrashStore {
    fn commit<'a>(&'a self, batch: &'a Batch) -> StoreFuture<'a, Position> {
        self.pass_through(Box::pin(async move {
            wait_while_held(&self.commit_hold).await;
            self.write_or_cut(|| self.inner.commit(batch)).await
        }))
    }

    fn sessions(&self) -> StoreFuture<'_, Vec<SessionRow>> {
        self.pass_through(self.inner.sessions())
    }

    fn session(&self, id: SessionId) -> StoreFuture<'_, Option<SessionRow>> {
        self.pass_through(self.inner.session(id))
    }

    fn session_named<'a>(&'a self, name: &'a SessionName) -> StoreFuture<'a, Option<SessionRow>> {
        self.pass_through(self.inner.session_named(name))
    }

    fn acquire<'a>(&'a self, lane: Lane, row: &'a SessionRow) -> StoreFuture<'a, AcquireResult> {
        self.pass_through(self.inner.acquire(lane, row))
    }

    fn load(&self, id: SessionId) -> StoreFuture<'_, Option<LoadedSession>> {
        self.pass_through(self.inner.load(id))
    }

    fn task(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Option<TaskRow>> {
        self.pass_through(self.inner.task(id, no))
    }

    fn task_named<'a>(
        &'a self,
        id: SessionId,
        owner: Option<Owner>,
        name: &'a TaskName,
    ) -> StoreFuture<'a, Option<StoredTask>> {
        self.pass_through(self.inner.task_named(id, owner, name))
    }

    fn tasks<'a>(
        &'a self,
        id: SessionId,
        query: &'a TaskQuery,
    ) -> StoreFuture<'a, Vec<StoredTask>> {
        self.pass_through(self.inner.tasks(id, query))
    }

    fn journal(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Vec<JournalEntry>> {
        self.pass_through(self.inner.journal(id, no))
    }

    fn run(&self, id: SessionId, no: TaskNo, run: RunNo) -> StoreFuture<'_, Option<RunRow>> {
        self.pass_through(self.inner.run(id, no, run))
    }

    fn message(&self, id: SessionId, no: MessageNo) -> StoreFuture<'_, Option<MessageRow>> {
        self.pass_through(self.inner.message(id, no))
    }

    fn messages<'a>(
        &'a self,
        id: SessionId,
        query: &'a MessageQuery,
    ) -> StoreFuture<'a, MessagePage> {
        self.pass_through(self.inner.messages(id, query))
    }

    fn message_key<'a>(
        &'a self,
        id: SessionId,
        scope: MessageKeyScope,
        key: &'a IdempotencyKey,
    ) -> StoreFuture<'a, Option<MessageKeyMark>> {
        self.pass_through(self.inner.message_key(id, scope, key))
    }

    fn events<'a>(&'a self, query: &'a EventQuery) -> StoreFuture<'a, EventPage> {
        self.pass_through(self.inner.events(query))
    }

    fn refuse_late_commits(&self, lane: Lane) -> StoreFuture<'_, ()> {
        self.pass_through(self.inner.refuse_late_commits(lane))
    }

    fn open_lane(&self) -> StoreFuture<'_, Lane> {
        self.pass_through(self.inner.open_lane())
    }

    fn cursor(&self) -> StoreFuture<'_, FeedCursor> {
        self.pass_through(self.inner.cursor())
    }

    fn prune<'a>(&'a self, retention: &'a Retention, now: Time) -> StoreFuture<'a, PruneResult> {
        self.pass_through(self.inner.prune(retention, now))
    }
}

impl RecordStore for CrashStore {
    fn record<'a>(&'a self, key: &'a RecordKey, now: Time) -> StoreFuture<'a, Option<Record>> {
        self.pass_through(self.inner.record(key, now))
    }

    fn records<'a>(&'a self, query: &'a RecordQuery, now: Time) -> StoreFuture<'a, RecordPage> {
        self.pass_through(self.inner.records(query, now))
    }

    fn put_record<'a>(
        &'a self,
        record: &'a NewRecord,
        expected: ExpectedVersion,
        now: Time,
    ) -> StoreFuture<'a, PutRecordResult> {
        self.pass_through(Box::pin(async move {
            wait_while_held(&self.put_hold).await;
            self.write_or_cut(move || self.inner.put_record(record, expected, now)).await
        }))
    }

    fn remove_record<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<RecordVersion>,
        now: Time,
    ) -> StoreFuture<'a, RemoveRecordResult> {
        let removal = self.write_or_cut(move || self.inner.remove_record(key, expected, now));
        self.pass_through(Box::pin(removal))
    }

    fn remove_expired_records(&self, now: Time, limit: usize) -> StoreFuture<'_, usize> {
        if self.crashed.load(Ordering::SeqCst) {
            return Box::pin(pending());
        }
        self.inner.remove_expired_records(now, limit)
    }
}
