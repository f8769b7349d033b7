//! The connection of one node to a store that it shares with others. It can be cut, hang, and lose requests
//! and answers.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_model::call::JournalEntry;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, MessageNo, Owner, Position, RunNo, SessionId, TaskNo, Time};
use brigade_model::message::MessageKeyScope;
use brigade_model::name::{IdempotencyKey, SessionName, TaskName};
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::{MessageKeyMark, MessageRow, SessionRow};
use brigade_store::{
    AcquireResult, Batch, BoxFuture, CallAnswer, CallId, CallResult, ClaimedSession, EventPage,
    EventQuery, ExpectedVersion, Fleet, JoinResult, LeaseRenewal, LimitGrant, LimitReport,
    LoadedSession, MessagePage, MessageQuery, NewCall, NewNode, NewRecord, NodeId, NodeLoad,
    NodeRow, OpenCall, OpenCallQuery, PruneResult, PutRecordResult, Record, RecordKey, RecordPage,
    RecordQuery, RecordStore, RecordVersion, RemoveRecordResult, RequiredLabels, Retention, RunRow,
    SessionClaim, SessionOwner, SessionRelease, Store, StoreError, StoreFuture, TaskQuery,
};
use tokio::sync::watch;

/// A shared store as one node reaches it.
#[derive(Debug)]
pub struct NodeConnection {
    inner: Arc<dyn Store>,
    condition: watch::Sender<ConnectionCondition>,
    faults: Mutex<FaultPlan>,
    /// The session that the node cannot read.
    unreadable: Mutex<Option<SessionId>>,
    late_load: watch::Sender<LateLoad>,
    cuts_after_acquisition: AtomicBool,
    loses_answer: AtomicBool,
    fenced_commits: AtomicU64,
}

/// A load of a session whose answer arrives late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LateLoad {
    None,
    /// The next load is late.
    Next,
    /// The load has happened, and its answer is held.
    Held,
}

/// The condition of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionCondition {
    Works,
    /// Requests fail at once and have no effect.
    Cut,
    /// Requests wait until the connection works again.
    Hangs,
}

/// Random faults of requests.
#[derive(Debug, Default)]
struct FaultPlan {
    /// The state of the random numbers.
    random: u64,
    /// The number of requests in a thousand that fail.
    per_mille: u64,
    /// The most milliseconds that a request takes.
    delay_max: u64,
    loses_hints: bool,
}

/// The fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestFault {
    None,
    /// The request is lost and has no effect.
    LostRequest,
    /// The request has its effect, and the answer is lost.
    LostAnswer,
}

impl NodeConnection {
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        let (condition, _) = watch::channel(ConnectionCondition::Works);
        Arc::new(Self {
            inner,
            condition,
            faults: Mutex::default(),
            unreadable: Mutex::default(),
            late_load: watch::Sender::new(LateLoad::None),
            cuts_after_acquisition: AtomicBool::new(false),
            loses_answer: AtomicBool::new(false),
            fenced_commits: AtomicU64::new(0),
        })
    }

    /// Changes the condition of the connection.
    pub fn set(&self, condition: ConnectionCondition) {
        self.condition.send_replace(condition);
    }

    /// Lets requests fail at random: before or after their effect, and after a random delay. The same seed
    /// gives the same faults for the same requests.
    pub fn set_faults(&self, seed: u64, per_mille: u64, delay_max: Duration) {
        let mut faults = self.lock();
        faults.random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        faults.per_mille = per_mille;
        faults.delay_max = u64::try_from(delay_max.as_millis()).unwrap_or(u64::MAX);
    }

    /// Loses all hints of other nodes, so that the node finds out everything by polling.
    pub fn lose_hints(&self) {
        self.lock().loses_hints = true;
    }

    /// Lets the node be too old to read a session.
    pub fn set_unreadable(&self, session: SessionId) {
        *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    /// Holds the answer of the next load of a session, until it is released.
    pub fn hold_next_load(&self) {
        self.late_load.send_replace(LateLoad::Next);
    }

    /// Waits until the answer of a load is held.
    pub async fn wait_load_held(&self) {
        let mut load = self.late_load.subscribe();
        let _ = load.wait_for(|load| *load == LateLoad::Held).await;
    }

    pub fn release_load(&self) {
        self.late_load.send_replace(LateLoad::None);
    }

    /// Cuts the connection after the next acquisition of a session, whose answer is lost.
    pub fn cut_after_acquisition(&self) {
        self.cuts_after_acquisition.store(true, Ordering::Relaxed);
    }

    /// Loses the next reply to a call of another node, on its way to the store.
    pub fn lose_next_answer(&self) {
        self.loses_answer.store(true, Ordering::Relaxed);
    }

    /// Returns the number of commits that were refused because the node does not own a session.
    pub fn fenced_commits(&self) -> u64 {
        self.fenced_commits.load(Ordering::Relaxed)
    }

    /// Holds the answer of a load that is to be late.
    async fn delay_load(&self) {
        let is_late = self.late_load.send_if_modified(|load| {
            let is_next = *load == LateLoad::Next;
            if is_next {
                *load = LateLoad::Held;
            }
            is_next
        });
        if is_late {
            let mut load = self.late_load.subscribe();
            let _ = load.wait_for(|load| *load == LateLoad::None).await;
        }
    }

    fn check_readable(&self, session: SessionId) -> Result<(), StoreError> {
        match *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(unreadable) if unreadable == session => {
                Err(StoreError::Newer { subject: format!("session {session}") })
            }
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, FaultPlan> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inner_fleet(&self) -> Result<&dyn Fleet, StoreError> {
        self.inner.fleet().ok_or_else(|| unavailable("it is no fleet"))
    }

    fn pass<'a, T: Send + 'a>(
        &'a self,
        request: impl Future<Output = Result<T, StoreError>> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let mut condition = self.condition.subscribe();
            let works = condition.wait_for(|it| *it != ConnectionCondition::Hangs).await;
            if works.is_ok_and(|condition| *condition == ConnectionCondition::Cut) {
                return Err(unavailable("the connection is cut"));
            }
            let (fault, delay) = self.lock().next();
            if fault == RequestFault::LostRequest {
                return Err(unavailable("the request is lost"));
            }
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let answer = request.await;
            let condition = *self.condition.borrow();
            match (fault, condition) {
                (RequestFault::LostAnswer, _) | (_, ConnectionCondition::Cut) => {
                    Err(unavailable("the answer is lost"))
                }
                _ => answer,
            }
        })
    }
}

impl FaultPlan {
    fn next(&mut self) -> (RequestFault, Duration) {
        if self.random == 0 {
            return (RequestFault::None, Duration::ZERO);
        }
        let fault = match self.number() % 1000 {
            number if number < self.per_mille / 2 => RequestFault::LostRequest,
            number if number < self.per_mille => RequestFault::LostAnswer,
            _ => RequestFault::None,
        };
        let delay = self.number() % (self.delay_max + 1);
        (fault, Duration::from_millis(delay))
    }

    /// Returns the next random number (xorshift).
    fn number(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 11
    }
}

fn unavailable(reason: &str) -> StoreError {
    StoreError::Unavailable(reason.into())
}

impl Store for NodeConnection {
    fn commit<'a>(&'a self, batch: &'a Batch) -> StoreFuture<'a, Position> {
        self.pass(async move {
            let committed = self.inner.commit(batch).await;
            if matches!(committed, Err(StoreError::Fenced(_))) {
                self.fenced_commits.fetch_add(1, Ordering::Relaxed);
            }
            committed
        })
    }

    fn fleet(&self) -> Option<&dyn Fleet> {
        self.inner.fleet().map(|_| self as &dyn Fleet)
    }

    fn sessions(&self) -> StoreFuture<'_, Vec<SessionRow>> {
        self.pass(async move { self.inner.sessions().await })
    }

    fn session(&self, id: SessionId) -> StoreFuture<'_, Option<SessionRow>> {
        self.pass(async move {
            self.check_readable(id)?;
            self.inner.session(id).await
        })
    }

    fn session_named<'a>(&'a self, name: &'a SessionName) -> StoreFuture<'a, Option<SessionRow>> {
        self.pass(async move { self.inner.session_named(name).await })
    }

    fn acquire<'a>(&'a self, lane: Lane, row: &'a SessionRow) -> StoreFuture<'a, AcquireResult> {
        self.pass(async move {
            let acquired = self.inner.acquire(lane, row).await;
            if self.cuts_after_acquisition.swap(false, Ordering::Relaxed) {
                self.set(ConnectionCondition::Cut);
            }
            acquired
        })
    }

    fn load(&self, id: SessionId) -> StoreFuture<'_, Option<LoadedSession>> {
        self.pass(async move {
            self.check_readable(id)?;
            let loaded = self.inner.load(id).await;
            self.delay_load().await;
            loaded
        })
    }

    fn task(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Option<TaskRow>> {
        self.pass(async move { self.inner.task(id, no).await })
    }

    fn task_named<'a>(
        &'a self,
        id: SessionId,
        owner: Option<Owner>,
        name: &'a TaskName,
    ) -> StoreFuture<'a, Option<StoredTask>> {
        self.pass(async move { self.inner.task_named(id, owner, name).await })
    }

    fn tasks<'a>(
        &'a self,
        id: SessionId,
        query: &'a TaskQuery,
    ) -> StoreFuture<'a, Vec<StoredTask>> {
        self.pass(async move { self.inner.tasks(id, query).await })
    }

    fn journal(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Vec<JournalEntry>> {
        self.pass(async move { self.inner.journal(id, no).await })
    }

    fn run(&self, id: SessionId, no: TaskNo, run: RunNo) -> StoreFuture<'_, Option<RunRow>> {
        self.pass(async move { self.inner.run(id, no, run).await })
    }

    fn message(&self, id: SessionId, no: MessageNo) -> StoreFuture<'_, Option<MessageRow>> {
        self.pass(async move { self.inner.message(id, no).await })
    }

    fn messages<'a>(
        &'a self,
        id: SessionId,
        query: &'a MessageQuery,
    ) -> StoreFuture<'a, MessagePage> {
        self.pass(async move { self.inner.messages(id, query).await })
    }

    fn message_key<'a>(
        &'a self,
        id: SessionId,
        scope: MessageKeyScope,
        key: &'a IdempotencyKey,
    ) -> StoreFuture<'a, Option<MessageKeyMark>> {
        self.pass(async move { self.inner.message_key(id, scope, key).await })
    }

    fn events<'a>(&'a self, query: &'a EventQuery) -> StoreFuture<'a, EventPage> {
        self.pass(async move { self.inner.events(query).await })
    }

    fn refuse_late_commits(&self, lane: Lane) -> StoreFuture<'_, ()> {
        self.pass(async move { self.inner.refuse_late_commits(lane).await })
    }

    fn open_lane(&self) -> StoreFuture<'_, Lane> {
        self.pass(async move { self.inner.open_lane().await })
    }

    fn cursor(&self) -> StoreFuture<'_, FeedCursor> {
        self.pass(async move { self.inner.cursor().await })
    }

    fn prune<'a>(&'a self, retention: &'a Retention, now: Time) -> StoreFuture<'a, PruneResult> {
        self.pass(async move { self.inner.prune(retention, now).await })
    }
}

impl RecordStore for NodeConnection {
    fn record<'a>(&'a self, key: &'a RecordKey, now: Time) -> StoreFuture<'a, Option<Record>> {
        self.pass(async move { self.inner.record(key, now).await })
    }

    fn records<'a>(&'a self, query: &'a RecordQuery, now: Time) -> StoreFuture<'a, RecordPage> {
        self.pass(async move { self.inner.records(query, now).await })
    }

    fn put_record<'a>(
        &'a self,
        record: &'a NewRecord,
        expected: ExpectedVersion,
        now: Time,
    ) -> StoreFuture<'a, PutRecordResult> {
        self.pass(async move { self.inner.put_record(record, expected, now).await })
    }

    fn remove_record<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<RecordVersion>,
        now: Time,
    ) -> StoreFuture<'a, RemoveRecordResult> {
        self.pass(async move { self.inner.remove_record(key, expected, now).await })
    }

    fn remove_expired_records(&self, now: Time, limit: usize) -> StoreFuture<'_, usize> {
        self.pass(async move { self.inner.remove_expired_records(now, limit).await })
    }
}

impl Fleet for NodeConnection {
    fn join<'a>(&'a self, node: &'a NewNode) -> StoreFuture<'a, JoinResult> {
        self.pass(async move { self.inner_fleet()?.join(node).await })
    }

    fn renew<'a>(
        &'a self,
        node: NodeId,
        load: &'a NodeLoad,
    ) -> StoreFuture<'a, Option<LeaseRenewal>> {
        self.pass(async move { self.inner_fleet()?.renew(node, load).await })
    }

    fn close_node(&self, node: NodeId) -> StoreFuture<'_, ()> {
        self.pass(async move { self.inner_fleet()?.close_node(node).await })
    }

    fn close_expired(&self) -> StoreFuture<'_, Vec<NodeRow>> {
        self.pass(async move { self.inner_fleet()?.close_expired().await })
    }

    fn nodes(&self) -> StoreFuture<'_, Vec<NodeRow>> {
        self.pass(async move { self.inner_fleet()?.nodes().await })
    }

    fn set_draining(&self, node: NodeId, draining: bool) -> StoreFuture<'_, bool> {
        self.pass(async move { self.inner_fleet()?.set_draining(node, draining).await })
    }

    fn claim<'a>(&'a self, claim: &'a SessionClaim) -> StoreFuture<'a, Vec<ClaimedSession>> {
        self.pass(async move { self.inner_fleet()?.claim(claim).await })
    }

    fn owned_sessions(&self, lane: Lane) -> StoreFuture<'_, Vec<SessionId>> {
        self.pass(async move { self.inner_fleet()?.owned_sessions(lane).await })
    }

    fn release<'a>(&'a self, release: &'a SessionRelease) -> StoreFuture<'a, bool> {
        self.pass(async move { self.inner_fleet()?.release(release).await })
    }

    fn require_labels<'a>(
        &'a self,
        session: SessionId,
        labels: &'a [String],
    ) -> StoreFuture<'a, bool> {
        self.pass(async move { self.inner_fleet()?.require_labels(session, labels).await })
    }

    fn required_labels<'a>(
        &'a self,
        sessions: &'a [SessionId],
    ) -> StoreFuture<'a, Vec<RequiredLabels>> {
        self.pass(async move { self.inner_fleet()?.required_labels(sessions).await })
    }

    fn owners<'a>(&'a self, sessions: &'a [SessionId]) -> StoreFuture<'a, Vec<SessionOwner>> {
        self.pass(async move { self.inner_fleet()?.owners(sessions).await })
    }

    fn ask<'a>(&'a self, call: &'a NewCall) -> StoreFuture<'a, bool> {
        self.pass(async move { self.inner_fleet()?.ask(call).await })
    }

    fn open_calls<'a>(&'a self, query: &'a OpenCallQuery) -> StoreFuture<'a, Vec<OpenCall>> {
        self.pass(async move { self.inner_fleet()?.open_calls(query).await })
    }

    fn replies<'a>(&'a self, calls: &'a [CallId]) -> StoreFuture<'a, Vec<CallResult>> {
        self.pass(async move { self.inner_fleet()?.replies(calls).await })
    }

    fn answer<'a>(&'a self, answer: &'a CallAnswer) -> StoreFuture<'a, ()> {
        self.pass(async move {
            if self.loses_answer.swap(false, Ordering::Relaxed) {
                return Err(unavailable("the request is lost"));
            }
            self.inner_fleet()?.answer(answer).await
        })
    }

    fn remove_calls<'a>(&'a self, calls: &'a [CallId]) -> StoreFuture<'a, Vec<CallResult>> {
        self.pass(async move { self.inner_fleet()?.remove_calls(calls).await })
    }

    fn exchange_limits<'a>(
        &'a self,
        report: &'a LimitReport,
    ) -> StoreFuture<'a, Option<LimitGrant>> {
        self.pass(async move { self.inner_fleet()?.exchange_limits(report).await })
    }

    fn notify(&self) -> StoreFuture<'_, ()> {
        self.pass(async move { self.inner_fleet()?.notify().await })
    }

    fn next_hint(&self) -> BoxFuture<'_, ()> {
        match self.inner.fleet() {
            Some(fleet) if !self.lock().loses_hints => fleet.next_hint(),
            _ => Box::pin(std::future::pending()),
        }
    }
}
