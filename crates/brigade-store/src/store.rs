//! The contract between the runtime and whatever keeps its state.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use brigade_model::call::JournalEntry;
use brigade_model::event::FeedItem;
use brigade_model::ids::{MessageNo, Millis, Owner, Position, RunNo, SessionId, TaskNo, Time};
use brigade_model::message::Message;
use brigade_model::name::{SessionName, TaskName};
use brigade_model::outcome::Outcome;
use brigade_model::task::TaskRow;
use brigade_model::task_tree::{KeyMark, MessageRow, SessionRow, TaskTree};
use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::error::StoreError;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Where trees, events, journals and inboxes live.
///
/// Reads see whole commits only. A read never changes anything. The words on crashes below mean the
/// end of this process at any instant; what a power cut does depends on the store and is said there.
pub trait Store: Debug + Send + Sync + 'static {
    /// Writes a batch, whole or not at all.
    ///
    /// When it returns `Ok`, the batch survives a crash. When it returns an error or the process
    /// ends before it returns, either all of the batch is there or none of it:
    /// [`Store::tree`] tells which, by the tree's `seq`. A batch whose `base` is not the stored
    /// `seq`, or whose epoch is not the stored one, is refused as [`StoreError::Fenced`]; so is one
    /// that changes a task which [`Store::prune`] has removed.
    ///
    /// Returns the position of the batch's first event; the others follow without a gap, in the
    /// order of [`Batch::events`].
    fn commit<'a>(&'a self, batch: &'a Batch) -> StoreFuture<'a, Position>;

    /// Every tree that can be read, in the order in which they were opened. One that cannot, because
    /// a newer version wrote it or it is damaged, says so when it is asked for by itself.
    fn sessions(&self) -> StoreFuture<'_, Vec<SessionRow>>;

    fn session(&self, id: SessionId) -> StoreFuture<'_, Option<SessionRow>>;

    /// The open or closing tree of this name, else the newest closed one.
    fn session_named<'a>(&'a self, name: &'a SessionName) -> StoreFuture<'a, Option<SessionRow>>;

    /// What the loop needs in memory of a tree: all that lives or still holds a slot with all whose
    /// limits hold for it, all that somebody has yet to collect, the tasks that a parked wait will be
    /// told of, unread messages, and the keys of children whose parents live.
    fn load(&self, id: SessionId) -> StoreFuture<'_, Option<LoadedSession>>;

    fn task(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Option<TaskRow>>;

    /// Those of these numbers of which there is no task, in the order in which they are given.
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

    /// The newest task of this name, living or not; with an owner, among its children.
    fn task_named<'a>(
        &'a self,
        id: SessionId,
        owner: Option<Owner>,
        name: &'a TaskName,
    ) -> StoreFuture<'a, Option<(TaskNo, TaskRow)>>;

    /// Tasks in ascending order of their numbers.
    fn tasks<'a>(
        &'a self,
        id: SessionId,
        query: &'a TaskQuery,
    ) -> StoreFuture<'a, Vec<(TaskNo, TaskRow)>>;

    /// A task's journal in the order in which its calls were answered.
    fn journal(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Vec<JournalEntry>>;

    /// The ending of an earlier run. The latest run's is in the task's row.
    fn run(&self, id: SessionId, no: TaskNo, run: RunNo) -> StoreFuture<'_, Option<RunRow>>;

    /// A message and how far it has come.
    fn message(&self, id: SessionId, no: MessageNo) -> StoreFuture<'_, Option<MessageRow>>;

    /// Events after a position, oldest first.
    fn events<'a>(&'a self, query: &'a EventQuery) -> StoreFuture<'a, EventPage>;

    /// The position of the newest event; zero when there is none.
    fn last_position(&self) -> StoreFuture<'_, Position>;

    /// Removes what retention allows: tasks that are over (see [`crate::Standing`]) with all below
    /// them, their journals and the messages to them, unless something below still holds a slot or
    /// limits a kept task that is not removed itself; closed trees; old events. A removed task leaves its key behind while its parent lives. A
    /// crash in the middle leaves some of it for the next time.
    fn prune<'a>(&'a self, retention: &'a Retention, now: Time) -> StoreFuture<'a, PruneResult>;
}

/// A tree's rows as they were loaded.
#[derive(Clone, Debug)]
pub struct LoadedSession {
    pub row: SessionRow,
    /// Parents before their children.
    pub tasks: Vec<(TaskNo, TaskRow)>,
    /// In the order in which they were sent.
    pub unread: Vec<Arc<Message>>,
    pub keys: Vec<KeyMark>,
}

impl LoadedSession {
    pub fn into_tree(self) -> TaskTree {
        let mut tree = TaskTree::from_row(self.row);
        for (no, row) in self.tasks {
            tree.insert_loaded(no, row);
        }
        for message in self.unread {
            tree.insert_unread(message);
        }
        for mark in self.keys {
            tree.insert_key(mark);
        }
        tree.finish_loading();
        tree
    }
}

/// The ending of a run that was followed by another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRow {
    pub run: RunNo,
    pub outcome: Arc<Outcome>,
    pub ended_at: Time,
}

#[derive(Clone, Debug)]
pub struct TaskQuery {
    /// Only children of this owner.
    pub owner: Option<Owner>,
    /// Only tasks that have not ended.
    pub alive_only: bool,
    /// Only numbers above this one.
    pub after: Option<TaskNo>,
    pub limit: usize,
}

impl Default for TaskQuery {
    fn default() -> Self {
        Self { owner: None, alive_only: false, after: None, limit: usize::MAX }
    }
}

#[derive(Clone, Debug)]
pub struct EventQuery {
    /// Only this tree's.
    pub session: Option<SessionId>,
    pub after: Position,
    pub limit: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPage {
    pub items: Vec<FeedItem>,
    /// Where to ask on from: everything up to here was looked at.
    pub read_to: Position,
    /// Events up to this position were asked for and are no longer kept.
    pub gap_to: Option<Position>,
}

/// What may be removed.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Ended and collected tasks, and closed trees, are kept this long.
    pub ended: Millis,
    /// Events are kept this long; those of trees that are gone go as soon as no older event is
    /// kept, so that a gap is always at the beginning.
    pub events: Millis,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneResult {
    pub sessions: u64,
    /// By themselves or with their tree.
    pub tasks: u64,
    pub events: u64,
}
