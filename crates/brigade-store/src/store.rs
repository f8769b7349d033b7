//! The contract between the runtime and its durable storage.

use std::fmt::Debug;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use brigade_model::call::JournalEntry;
use brigade_model::event::FeedItem;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{
    Epoch, Lane, MessageNo, Millis, Owner, Position, RunNo, Seq, SessionId, TaskNo, Time,
};
use brigade_model::message::{Message, MessageKeyScope};
use brigade_model::name::{IdempotencyKey, SessionName, TaskName};
use brigade_model::outcome::Outcome;
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::{KeyMark, MessageKeyMark, MessageRow, SessionRow, TaskTree};
use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::error::StoreError;
use crate::fleet::Fleet;
use crate::record_store::RecordStore;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// The future of a store's method.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Durable storage of sessions, events, journals, inboxes and records ([`RecordStore`]).
///
/// A read sees whole commits only and changes nothing. A crash, in the docs of the methods, is the
/// end of this process at any instant. Each store documents the effect of a power cut.
///
/// ```
/// use std::sync::Arc;
///
/// use brigade_store::{MemoryStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), brigade_store::StoreError> {
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
/// assert!(store.sessions().await?.is_empty());
/// # Ok(())
/// # }
/// ```
pub trait Store: RecordStore + Debug + Send + Sync + 'static {
    /// Writes a batch, whole or not at all.
    ///
    /// After `Ok`, the batch survives a crash. After an error or a crash, the store has either the
    /// whole batch or nothing of it. After [`Store::refuse_late_commits`], [`Store::cursor`] shows which, since a
    /// lane has one writer.
    ///
    /// The store refuses a batch with [`StoreError::Fenced`] if its `base` or its epoch is not the
    /// stored one. It also refuses a change of a task that [`Store::prune`] has removed. A batch that
    /// opens a session is refused with [`StoreError::NameTaken`] if another session of its name is
    /// not closed. An answer to a removed call is ignored, unless it says that the call must exist. Then,
    /// and if a call has a reply, the batch is refused with [`StoreError::CallClosed`], which names all such
    /// calls of the batch.
    ///
    /// Returns the position of the batch's first event in its lane. The others follow without a gap,
    /// in the order of [`Batch::events`].
    fn commit<'a>(&'a self, batch: &'a Batch) -> StoreFuture<'a, Position>;

    /// Refuses the failed commits of a lane from now on, if they arrive late.
    ///
    /// A store in another process may get a batch after its writer has lost the connection. The call
    /// waits for a commit that has begun. A store whose commits end with their call has nothing to
    /// do.
    fn refuse_late_commits(&self, lane: Lane) -> StoreFuture<'_, ()> {
        let _ = lane;
        Box::pin(ready(Ok(())))
    }

    /// Opens a lane for the batches of one writer. A store that has only one writer has one lane,
    /// which it returns each time.
    fn open_lane(&self) -> StoreFuture<'_, Lane>;

    /// Returns the number of lanes that one process best writes at the same time. A store whose commits
    /// take turns says one.
    fn parallel_lanes(&self) -> usize {
        1
    }

    /// Returns every readable session, in the order in which they were opened. A session that a
    /// newer version wrote, or that is damaged, is omitted; [`Store::session`] returns its error.
    fn sessions(&self) -> StoreFuture<'_, Vec<SessionRow>>;

    fn session(&self, id: SessionId) -> StoreFuture<'_, Option<SessionRow>>;

    /// Returns the open or closing session of this name, else the newest closed one.
    fn session_named<'a>(&'a self, name: &'a SessionName) -> StoreFuture<'a, Option<SessionRow>>;

    /// Makes a lane the only writer of a session that its owner has loaded, with this row. From then
    /// on, batches of earlier writers are refused.
    ///
    /// A session of another node with an open lane is not acquired. The lanes of one node take each
    /// other's sessions. A lane that belongs to no node protects nothing. A closed lane acquires nothing: the result is [`StoreError::Fenced`].
    fn acquire<'a>(&'a self, lane: Lane, row: &'a SessionRow) -> StoreFuture<'a, AcquireResult>;

    /// Returns the coordination of nodes, if several can share this store.
    fn fleet(&self) -> Option<&dyn Fleet> {
        None
    }

    /// Loads the rows of a session that the loop needs in memory:
    /// - tasks that are alive or hold a slot, with the tasks whose limits apply to them;
    /// - tasks whose result their owner has not collected, and the tasks of parked waits;
    /// - unread messages, and the idempotency keys of children of alive parents;
    /// - the keys of messages in the current runs of alive tasks.
    fn load(&self, id: SessionId) -> StoreFuture<'_, Option<LoadedSession>>;

    fn task(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Option<TaskRow>>;

    /// Returns the numbers that no stored task has, in the given order.
    fn missing_tasks<'a>(
        &'a self,
        id: SessionId,
        numbers: &'a [TaskNo],
    ) -> StoreFuture<'a, Vec<TaskNo>> {
        Box::pin(async move {
            let mut missing = Vec::new();
            for no in numbers {
                if self.task(id, *no).await?.is_none() {
                    missing.push(*no);
                }
            }
            Ok(missing)
        })
    }

    /// Returns the newest task of this name, alive or ended. With an owner, only its children
    /// count.
    fn task_named<'a>(
        &'a self,
        id: SessionId,
        owner: Option<Owner>,
        name: &'a TaskName,
    ) -> StoreFuture<'a, Option<StoredTask>>;

    /// Returns tasks in the order of the query.
    fn tasks<'a>(&'a self, id: SessionId, query: &'a TaskQuery)
    -> StoreFuture<'a, Vec<StoredTask>>;

    /// Returns a task's journal, in the order in which its calls completed.
    fn journal(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Vec<JournalEntry>>;

    /// Returns a part of a task's journal, in the same order. A store reads no other entries.
    fn journal_page<'a>(
        &'a self,
        id: SessionId,
        no: TaskNo,
        query: &'a JournalQuery,
    ) -> StoreFuture<'a, Vec<JournalEntry>> {
        Box::pin(async move {
            let mut journal = self.journal(id, no).await?;
            journal.retain(|entry| entry.order > query.after);
            journal.truncate(query.limit);
            Ok(journal)
        })
    }

    /// Returns the outcome of an earlier run. The outcome of the latest run is in the task's row.
    fn run(&self, id: SessionId, no: TaskNo, run: RunNo) -> StoreFuture<'_, Option<RunRow>>;

    /// Returns a message with its receipt.
    fn message(&self, id: SessionId, no: MessageNo) -> StoreFuture<'_, Option<MessageRow>>;

    /// Returns messages to and from a task, the newest first. One call reads no more messages of the
    /// session than the query allows, so that a page may be short or empty and have a next one.
    fn messages<'a>(
        &'a self,
        id: SessionId,
        query: &'a MessageQuery,
    ) -> StoreFuture<'a, MessagePage>;

    /// Returns the mark of the message that was sent with a key. The mark is there as long as the
    /// task whose run the scope names, also if the message itself was removed.
    fn message_key<'a>(
        &'a self,
        id: SessionId,
        scope: MessageKeyScope,
        key: &'a IdempotencyKey,
    ) -> StoreFuture<'a, Option<MessageKeyMark>>;

    /// Returns events after a place, oldest first.
    fn events<'a>(&'a self, query: &'a EventQuery) -> StoreFuture<'a, EventPage>;

    /// Returns the place behind the newest event of each lane.
    fn cursor(&self) -> StoreFuture<'_, FeedCursor>;

    /// Removes the data that retention allows: finished tasks (see [`crate::Residency`]) with their
    /// descendants, closed sessions, and old events.
    ///
    /// A task goes with its journal and the messages to it. Its subtree stays while a task in it
    /// holds a slot or limits a kept task outside of it. The key of a removed task stays while its
    /// parent is alive. After a crash, the next call removes the rest.
    ///
    /// Nodes that were closed more than a day ago go as well, and so do their lanes, once these own no
    /// session and have no event. The events of a removed lane count as read, also if a cursor has the
    /// lane, and an event whose session moved from there is not held back.
    fn prune<'a>(&'a self, retention: &'a Retention, now: Time) -> StoreFuture<'a, PruneResult>;
}

/// The result of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireResult {
    Acquired(AcquiredSession),
    /// The stored row is another one, or there is none.
    Changed,
    /// Another node owns the session.
    Owned,
    /// The node of the lane has not all labels that the session requires.
    LabelsMissing,
}

/// A session that was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquiredSession {
    /// The epoch of the owner's batches.
    pub epoch: Epoch,
    /// The position of the session's last event, if the store has several lanes.
    pub last: Option<Position>,
}

/// The loaded rows of a session.
#[derive(Clone, Debug)]
pub struct LoadedSession {
    pub row: SessionRow,
    /// Tasks, parents before their children.
    pub tasks: Vec<StoredTask>,
    /// Unread messages, in the order in which they were sent.
    pub unread: Vec<Arc<Message>>,
    pub keys: Vec<KeyMark>,
    /// Marks of keyed messages. The tree ignores those of earlier runs.
    pub message_keys: Vec<MessageKeyMark>,
}

impl LoadedSession {
    pub fn into_tree(self) -> TaskTree {
        let mut tree = TaskTree::from_row(self.row);
        for task in self.tasks {
            tree.insert_loaded(task);
        }
        for message in self.unread {
            tree.insert_unread(message);
        }
        for mark in self.keys {
            tree.insert_key(mark);
        }
        for mark in self.message_keys {
            tree.insert_message_key(mark);
        }
        tree.finish_loading();
        tree
    }
}

/// The end of a run that another run followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRow {
    pub run: RunNo,
    pub outcome: Arc<Outcome>,
    pub ended_at: Time,
}

/// A filter of tasks.
#[derive(Clone, Debug)]
pub struct TaskQuery {
    /// The owner whose children are read; `None` for all tasks.
    pub owner: Option<Owner>,
    /// Limits the result to tasks that have not ended.
    pub alive_only: bool,
    pub order: TaskOrder,
    /// The number after which the result begins, in the order of the query.
    pub after: Option<TaskNo>,
    pub limit: usize,
}

/// The order of tasks by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskOrder {
    #[default]
    OldestFirst,
    NewestFirst,
}

impl Default for TaskQuery {
    fn default() -> Self {
        Self {
            owner: None,
            alive_only: false,
            order: TaskOrder::OldestFirst,
            after: None,
            limit: usize::MAX,
        }
    }
}

impl TaskQuery {
    /// Returns true if a number is after [`Self::after`] in the order of the query.
    pub fn includes_number(&self, no: TaskNo) -> bool {
        self.after.is_none_or(|after| match self.order {
            TaskOrder::OldestFirst => no > after,
            TaskOrder::NewestFirst => no < after,
        })
    }
}

/// A part of a journal.
#[derive(Clone, Copy, Debug)]
pub struct JournalQuery {
    /// The order after which the result begins; zero for the whole journal.
    pub after: Seq,
    pub limit: usize,
}

/// A page of the messages to and from one task.
#[derive(Clone, Copy, Debug)]
pub struct MessageQuery {
    pub task: TaskNo,
    /// The number before which the page begins; `None` for the newest messages.
    pub before: Option<MessageNo>,
    /// The most messages of the page.
    pub limit: usize,
    /// The most messages of the session that the store reads for the page.
    pub read_limit: usize,
}

impl MessageQuery {
    /// Returns true for a message to or from the task.
    pub fn selects(&self, message: &Message) -> bool {
        message.to == Owner::Task(self.task) || message.from.task() == Some(self.task)
    }
}

/// Messages, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessagePage {
    pub items: Vec<MessageRow>,
    /// `before` of the next page; `None` if there are no older messages.
    pub next: Option<MessageNo>,
}

impl MessagePage {
    /// Returns the page of a query from messages before its start, the newest first: all, or at
    /// least one more than the query reads.
    pub fn read<E>(
        rows: impl Iterator<Item = Result<MessageRow, E>>,
        query: &MessageQuery,
    ) -> Result<Self, E> {
        let mut page = Self::default();
        let mut last_read = None;
        for (read, row) in rows.enumerate() {
            if read == query.read_limit || page.items.len() == query.limit {
                page.next = last_read.or(query.before);
                break;
            }
            let row = row?;
            last_read = Some(row.message.no);
            if query.selects(&row.message) {
                page.items.push(row);
            }
        }
        Ok(page)
    }
}

#[derive(Clone, Debug)]
pub struct EventQuery {
    /// The session whose events are read; `None` for all sessions.
    pub session: Option<SessionId>,
    pub after: FeedCursor,
    pub limit: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPage {
    pub items: Vec<FeedItem>,
    /// The `after` of the next query: this page covers all events up to here.
    pub read_to: FeedCursor,
    /// The place behind the requested events that retention has removed.
    pub gap_to: Option<FeedCursor>,
}

/// The ages at which data may be removed.
///
/// ```
/// use std::time::Duration;
///
/// use brigade_store::Retention;
///
/// let day = Duration::from_secs(24 * 60 * 60);
/// let retention = Retention { ended: (30 * day).into(), events: (7 * day).into() };
/// # assert!(retention.ended > retention.events);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// The age at which finished tasks and closed sessions may be removed.
    pub ended: Millis,
    /// The age at which events may be removed. Events of removed sessions go once no older event is
    /// stored, so that a gap is always at the beginning.
    pub events: Millis,
}

/// The numbers of removed rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneResult {
    pub sessions: u64,
    /// Tasks that were removed alone or with their session.
    pub tasks: u64,
    pub events: u64,
}
