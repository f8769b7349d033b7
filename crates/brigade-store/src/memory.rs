//! A store in memory: for tests, for programs that need not survive, and as the reference for other
//! stores.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_model::call::{JournalEntry, TaskEntry};
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::id_map::IdMap;
use brigade_model::ids::{Lane, MessageNo, Owner, Position, RunNo, SessionId, TaskNo, Time};
use brigade_model::message::{MessageKeyScope, Receipt};
use brigade_model::name::{IdempotencyKey, SessionName, TaskName};
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::{MessageKeyMark, MessageRow, SessionRow, SessionState};

use crate::batch::{Batch, SessionBatch};
use crate::error::StoreError;
use crate::fleet::Fleet;
use crate::memory_feed::MemoryFeed;
use crate::memory_fleet::{LeaseClock, MemoryFleet};
use crate::memory_hints::HintQueue;
use crate::memory_records::MemoryRecords;
use crate::memory_session::{MemorySession, limited_by};
use crate::residency::Residency;
use crate::store::{
    AcquireResult, AcquiredSession, EventPage, EventQuery, JournalQuery, LoadedSession,
    MessagePage, MessageQuery, PruneResult, Retention, RunRow, Store, StoreFuture, TaskOrder,
    TaskQuery,
};

/// Bounds of a [`MemoryStore`].
#[derive(Clone, Copy, Debug)]
pub struct MemoryOptions {
    /// The number of newest events to retain.
    pub max_events: usize,
    /// The number of newest finished tasks (see [`Residency::Finished`]) to retain.
    pub max_finished_tasks: usize,
    /// The number of newest messages to retain that were read, delivered or dead-lettered.
    pub max_processed_messages: usize,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { max_events: 100_000, max_finished_tasks: 10_000, max_processed_messages: 10_000 }
    }
}

/// A store that is lost with its process. A commit removes the oldest finished tasks, messages and
/// events beyond the bounds of [`MemoryOptions`].
///
/// ```
/// use brigade_store::{MemoryOptions, MemoryStore};
///
/// let options = MemoryOptions { max_events: 1_000, ..MemoryOptions::default() };
/// let store = MemoryStore::with_options(options);
/// ```
#[derive(Debug, Default)]
pub struct MemoryStore {
    options: MemoryOptions,
    inner: Mutex<MemoryState>,
    records: Mutex<MemoryRecords>,
    /// The clock of leases, if nodes share the store.
    pub(crate) lease_clock: Option<LeaseClock>,
    pub(crate) hints: HintQueue,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryState {
    open_order: Vec<SessionId>,
    pub(crate) sessions: IdMap<SessionId, MemorySession>,
    pub(crate) feed: MemoryFeed,
    pub(crate) fleet: MemoryFleet,
    finished: VecDeque<(SessionId, TaskNo)>,
    processed_messages: VecDeque<(SessionId, MessageNo)>,
}

/// A copy of a [`MemoryStore`], as a replica or a backup has it.
#[derive(Clone, Debug)]
pub struct MemorySnapshot {
    state: MemoryState,
    records: MemoryRecords,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_options(options: MemoryOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Returns an empty store that several nodes of this process share ([`crate::Fleet`]). The function
    /// returns the time by which leases are counted.
    pub fn shared_by_nodes(clock: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        let store = Self { lease_clock: Some(LeaseClock(Box::new(clock))), ..Self::default() };
        store.lock().fleet.is_enabled = true;
        store
    }

    /// Returns a copy of the present state.
    pub fn snapshot(&self) -> MemorySnapshot {
        MemorySnapshot { state: self.lock().clone(), records: self.lock_records().clone() }
    }

    /// Puts the store back to an earlier state, as the promotion of a replica does that has not received
    /// the later commits. Its nodes join again.
    pub fn restore(&self, snapshot: MemorySnapshot) {
        let MemorySnapshot { mut state, records } = snapshot;
        let mut current = self.lock();
        state.fleet.follow_lost(&current.fleet);
        state.feed.follow_lost(&current.feed);
        *current = state;
        *self.lock_records() = records;
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock_records(&self) -> MutexGuard<'_, MemoryRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        read: impl FnOnce(&MemoryState) -> T,
    ) -> StoreFuture<'a, T> {
        let found = read(&self.lock());
        Box::pin(ready(Ok(found)))
    }
}

impl Store for MemoryStore {
    fn commit<'a>(&'a self, batch: &'a Batch) -> StoreFuture<'a, Position> {
        let result = self.lock().commit(batch, &self.options);
        Box::pin(ready(result))
    }

    /// Opens a new lane each time, since several runtimes may share the store.
    fn open_lane(&self) -> StoreFuture<'_, Lane> {
        let lane = self.lock().feed.open_lane();
        Box::pin(ready(Ok(lane)))
    }

    fn sessions(&self) -> StoreFuture<'_, Vec<SessionRow>> {
        self.read(|inner| {
            let found = inner.open_order.iter().filter_map(|id| inner.sessions.get(id));
            found.map(|session| session.row.clone()).collect()
        })
    }

    fn session(&self, id: SessionId) -> StoreFuture<'_, Option<SessionRow>> {
        self.read(|inner| inner.sessions.get(&id).map(|session| session.row.clone()))
    }

    fn session_named<'a>(&'a self, name: &'a SessionName) -> StoreFuture<'a, Option<SessionRow>> {
        self.read(|inner| {
            let found = inner.open_order.iter().filter_map(|id| inner.sessions.get(id));
            let named = found.filter(|session| session.row.name == *name);
            named
                .max_by_key(|session| {
                    (session.row.state != SessionState::Closed, session.row.opened_at)
                })
                .map(|session| session.row.clone())
        })
    }

    fn acquire<'a>(&'a self, lane: Lane, row: &'a SessionRow) -> StoreFuture<'a, AcquireResult> {
        let acquired = self.lock().acquire(lane, row);
        Box::pin(ready(acquired))
    }

    fn fleet(&self) -> Option<&dyn Fleet> {
        self.lease_clock.is_some().then_some(self as &dyn Fleet)
    }

    fn load(&self, id: SessionId) -> StoreFuture<'_, Option<LoadedSession>> {
        self.read(|inner| inner.sessions.get(&id).map(MemorySession::load))
    }

    fn task(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Option<TaskRow>> {
        self.read(|inner| inner.sessions.get(&id)?.task_row(no))
    }

    fn task_named<'a>(
        &'a self,
        id: SessionId,
        owner: Option<Owner>,
        name: &'a TaskName,
    ) -> StoreFuture<'a, Option<StoredTask>> {
        self.read(|inner| {
            let mut rows = inner.sessions.get(&id)?.tasks.iter().rev();
            let found = rows.find(|(_, row)| {
                owner.is_none_or(|owner| row.owner == owner)
                    && row.name.as_ref().is_some_and(|other| other.same_as(name))
            });
            found.map(|(no, row)| StoredTask::new(*no, row.clone()))
        })
    }

    fn tasks<'a>(
        &'a self,
        id: SessionId,
        query: &'a TaskQuery,
    ) -> StoreFuture<'a, Vec<StoredTask>> {
        self.read(|inner| {
            let Some(session) = inner.sessions.get(&id) else { return Vec::new() };
            let matches = |(no, row): &(&TaskNo, &Arc<TaskRow>)| {
                query.includes_number(**no)
                    && query.owner.is_none_or(|owner| row.owner == owner)
                    && (!query.alive_only || row.is_alive())
            };
            let stored = |(no, row): (&TaskNo, &Arc<TaskRow>)| StoredTask::new(*no, row.clone());
            let tasks = session.tasks.iter();
            match query.order {
                TaskOrder::OldestFirst => {
                    tasks.filter(matches).take(query.limit).map(stored).collect()
                }
                TaskOrder::NewestFirst => {
                    tasks.rev().filter(matches).take(query.limit).map(stored).collect()
                }
            }
        })
    }

    fn journal(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Vec<JournalEntry>> {
        self.read(|inner| {
            let session = inner.sessions.get(&id);
            session.and_then(|session| session.journal.get(&no)).cloned().unwrap_or_default()
        })
    }

    fn journal_page<'a>(
        &'a self,
        id: SessionId,
        no: TaskNo,
        query: &'a JournalQuery,
    ) -> StoreFuture<'a, Vec<JournalEntry>> {
        self.read(|inner| {
            let session = inner.sessions.get(&id);
            let journal = session.and_then(|session| session.journal.get(&no));
            let journal = journal.map(Vec::as_slice).unwrap_or_default();
            let start = journal.partition_point(|entry| entry.order <= query.after);
            journal[start..].iter().take(query.limit).cloned().collect()
        })
    }

    fn run(&self, id: SessionId, no: TaskNo, run: RunNo) -> StoreFuture<'_, Option<RunRow>> {
        self.read(|inner| {
            let runs = inner.sessions.get(&id)?.runs.get(&no)?;
            runs.iter().find(|row| row.run == run).cloned()
        })
    }

    fn message(&self, id: SessionId, no: MessageNo) -> StoreFuture<'_, Option<MessageRow>> {
        self.read(|inner| inner.sessions.get(&id)?.messages.get(&no).cloned())
    }

    fn messages<'a>(
        &'a self,
        id: SessionId,
        query: &'a MessageQuery,
    ) -> StoreFuture<'a, MessagePage> {
        self.read(|inner| {
            let Some(session) = inner.sessions.get(&id) else { return MessagePage::default() };
            let before = query.before.unwrap_or(MessageNo(u64::MAX));
            let rows = session.messages.range(..before).rev();
            let rows = rows.map(|(_, row)| Ok::<_, Infallible>(row.clone()));
            let Ok(page) = MessagePage::read(rows, query);
            page
        })
    }

    fn message_key<'a>(
        &'a self,
        id: SessionId,
        scope: MessageKeyScope,
        key: &'a IdempotencyKey,
    ) -> StoreFuture<'a, Option<MessageKeyMark>> {
        self.read(|inner| inner.sessions.get(&id)?.message_key(scope, key))
    }

    fn events<'a>(&'a self, query: &'a EventQuery) -> StoreFuture<'a, EventPage> {
        self.read(|inner| inner.feed.read(query))
    }

    fn cursor(&self) -> StoreFuture<'_, FeedCursor> {
        self.read(|inner| inner.feed.cursor().clone())
    }

    fn prune<'a>(&'a self, retention: &'a Retention, now: Time) -> StoreFuture<'a, PruneResult> {
        let lease_now = self.lease_now();
        let mut state = self.lock();
        let pruned = state.prune(retention, now);
        state.remove_closed_nodes(lease_now);
        Box::pin(ready(Ok(pruned)))
    }
}

impl MemoryState {
    fn commit(&mut self, batch: &Batch, options: &MemoryOptions) -> Result<Position, StoreError> {
        self.fleet.check_writer(batch)?;
        for part in &batch.sessions {
            self.check(part)?;
        }
        self.fleet.store_answers(&batch.answers);
        let first = self.feed.last_position(batch.lane).next();
        for part in &batch.sessions {
            self.write(batch.lane, part);
        }
        self.feed.retain_newest(options.max_events);
        while self.finished.len() > options.max_finished_tasks {
            if let Some((id, no)) = self.finished.pop_front() {
                self.remove_finished(id, no);
            }
        }
        while self.processed_messages.len() > options.max_processed_messages {
            if let Some((id, no)) = self.processed_messages.pop_front()
                && let Some(session) = self.sessions.get_mut(&id)
            {
                session.remove_message(no);
            }
        }
        Ok(first)
    }

    fn acquire(&mut self, lane: Lane, row: &SessionRow) -> Result<AcquireResult, StoreError> {
        self.fleet.check_open(lane)?;
        let stored = self.sessions.get_mut(&row.id).map(|session| &mut session.row);
        let same = stored.filter(|stored| stored.seq == row.seq && stored.epoch == row.epoch);
        if !self.fleet.may_acquire(row.id, lane) {
            return Ok(AcquireResult::Owned);
        }
        let Some(stored) = same else { return Ok(AcquireResult::Changed) };
        if !self.fleet.lane_has_labels(row.id, lane) {
            return Ok(AcquireResult::LabelsMissing);
        }
        stored.epoch = stored.epoch.next();
        if self.fleet.is_enabled {
            self.fleet.set_owner(row.id, lane);
        }
        let last = self.fleet.last_position(row.id);
        Ok(AcquireResult::Acquired(AcquiredSession { epoch: stored.epoch, last }))
    }

    fn check(&self, part: &SessionBatch) -> Result<(), StoreError> {
        let stored = self.sessions.get(&part.row.id).map(|session| &session.row);
        let seq = stored.map_or(Default::default(), |row| row.seq);
        if seq != part.base {
            return Err(StoreError::Fenced(format!(
                "session {} is at {seq}, not at {}",
                part.row.id, part.base
            )));
        }
        if stored.is_some_and(|row| row.epoch != part.row.epoch) {
            return Err(StoreError::Fenced(format!("session {} has another epoch", part.row.id)));
        }
        if stored.is_none() && self.is_name_taken(&part.row.name) {
            return Err(StoreError::NameTaken(part.row.name.clone()));
        }
        let first = part.first_spawned();
        let old = part.tasks.iter().filter(|task| first.is_none_or(|first| task.no < first));
        let session = self.sessions.get(&part.row.id);
        for StoredTask { no, .. } in old {
            if session.is_none_or(|session| !session.tasks.contains_key(no)) {
                return Err(StoreError::Fenced(format!(
                    "task {no} of session {} was removed",
                    part.row.id
                )));
            }
        }
        Ok(())
    }

    fn is_name_taken(&self, name: &SessionName) -> bool {
        let mut rows = self.sessions.values().map(|session| &session.row);
        rows.any(|row| row.name == *name && row.state != SessionState::Closed)
    }

    fn write(&mut self, lane: Lane, part: &SessionBatch) {
        let id = part.row.id;
        let session = self.sessions.entry(id).or_insert_with(|| {
            self.open_order.push(id);
            MemorySession::new(part.row.clone())
        });
        session.store_superseded_runs(part);
        session.row = part.row.clone();
        for StoredTask { no, row } in &part.tasks {
            let before = session.put_task(*no, row.clone());
            if Residency::of(row) == Residency::Finished && before != Some(Residency::Finished) {
                self.finished.push_back((id, *no));
            }
        }
        for TaskEntry { no, entry } in &part.journal {
            session.journal.entry(*no).or_default().push(entry.clone());
        }
        for message in &part.messages {
            session.recipients.insert((message.message.to, message.message.no));
            session.put_message_key(&message.message);
            session.messages.insert(message.message.no, message.clone());
            if message.receipt != Receipt::Accepted {
                self.processed_messages.push_back((id, message.message.no));
            }
        }
        self.feed.append(lane, &part.events);
        if self.fleet.is_enabled {
            self.fleet.set_owner(id, lane);
            if !part.events.is_empty() {
                self.fleet.set_last_position(id, self.feed.last_position(lane));
            }
        }
    }

    fn remove_finished(&mut self, id: SessionId, no: TaskNo) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(row) = session.tasks.get(&no) else { return };
        let finished = Residency::of(row) == Residency::Finished;
        let limit_holder = limited_by(row).map(|holder| session.top_level_task(holder));
        if finished
            && session.remove_subtree(no) > 0
            && let Some(holder) = limit_holder
        {
            // The holder may have been skipped before because of this task.
            self.finished.push_front((id, holder));
        }
    }

    fn prune(&mut self, retention: &Retention, now: Time) -> PruneResult {
        let mut pruned = PruneResult::default();
        for session in self.sessions.values_mut() {
            for no in session.prunable(retention, now) {
                pruned.tasks += session.remove_subtree(no);
            }
        }
        let closed: Vec<SessionId> = self
            .sessions
            .values()
            .filter(|session| session.row.state == SessionState::Closed)
            .filter(|session| now.since(session.row.now) >= retention.ended)
            .map(|session| session.row.id)
            .collect();
        for id in closed {
            pruned.tasks +=
                self.sessions.remove(&id).map_or(0, |session| session.tasks.len() as u64);
            self.open_order.retain(|other| *other != id);
            self.fleet.remove_session(id);
            pruned.sessions += 1;
        }
        let sessions = &self.sessions;
        pruned.events = self.feed.remove_oldest(|record| {
            now.since(record.at) >= retention.events || !sessions.contains_key(&record.session)
        });
        pruned
    }
}
