//! The contract between the runtime and whatever keeps its state.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use brigade_model::call::Entry;
use brigade_model::event::FeedItem;
use brigade_model::ids::{MessageNo, Millis, Owner, Position, RunNo, TaskNo, Time, TreeId};
use brigade_model::message::Message;
use brigade_model::name::{Name, SessionName};
use brigade_model::outcome::Outcome;
use brigade_model::task::TaskRow;
use brigade_model::tree::{KeyMark, MessageRow, Tree, TreeRow};
use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::error::StoreError;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

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
    fn commit<'a>(&'a self, batch: &'a Batch) -> Answer<'a, Position>;

    /// Every tree that can be read, in the order in which they were opened. One that cannot, because
    /// a newer version wrote it or it is damaged, says so when it is asked for by itself.
    fn trees(&self) -> Answer<'_, Vec<TreeRow>>;

    fn tree(&self, id: TreeId) -> Answer<'_, Option<TreeRow>>;

    /// The open or closing tree of this name, else the newest closed one.
    fn tree_named<'a>(&'a self, name: &'a SessionName) -> Answer<'a, Option<TreeRow>>;

    /// What the loop needs in memory of a tree: all that lives or still holds a slot with all whose
    /// limits hold for it, all that somebody has yet to collect, the tasks that a parked wait will be
    /// told of, unread messages, and the keys of children whose parents live.
    fn load(&self, id: TreeId) -> Answer<'_, Option<LoadedTree>>;

    fn task(&self, id: TreeId, no: TaskNo) -> Answer<'_, Option<TaskRow>>;

    /// Those of these numbers of which there is no task, in the order in which they are given.
    fn missing<'a>(&'a self, id: TreeId, numbers: &'a [TaskNo]) -> Answer<'a, Vec<TaskNo>> {
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
        id: TreeId,
        owner: Option<Owner>,
        name: &'a Name,
    ) -> Answer<'a, Option<(TaskNo, TaskRow)>>;

    /// Tasks in ascending order of their numbers.
    fn tasks<'a>(&'a self, id: TreeId, query: &'a TaskQuery) -> Answer<'a, Vec<(TaskNo, TaskRow)>>;

    /// A task's journal in the order in which its calls were answered.
    fn journal(&self, id: TreeId, no: TaskNo) -> Answer<'_, Vec<Entry>>;

    /// The ending of an earlier run. The latest run's is in the task's row.
    fn run(&self, id: TreeId, no: TaskNo, run: RunNo) -> Answer<'_, Option<RunRow>>;

    /// A message and how far it has come.
    fn message(&self, id: TreeId, no: MessageNo) -> Answer<'_, Option<MessageRow>>;

    /// Events after a position, oldest first.
    fn events<'a>(&'a self, query: &'a EventQuery) -> Answer<'a, EventPage>;

    /// The position of the newest event; zero when there is none.
    fn last_position(&self) -> Answer<'_, Position>;

    /// Removes what retention allows: tasks that are over (see [`crate::Standing`]) with all below
    /// them, their journals and the messages to them, unless something below still holds a slot or
    /// limits a kept task that is not removed itself; closed trees; old events. A removed task leaves its key behind while its parent lives. A
    /// crash in the middle leaves some of it for the next time.
    fn prune<'a>(&'a self, retention: &'a Retention, now: Time) -> Answer<'a, Pruned>;
}

/// A tree's rows as they were loaded.
#[derive(Clone, Debug)]
pub struct LoadedTree {
    pub row: TreeRow,
    /// Parents before their children.
    pub tasks: Vec<(TaskNo, TaskRow)>,
    /// In the order in which they were sent.
    pub unread: Vec<Arc<Message>>,
    pub keys: Vec<KeyMark>,
}

impl LoadedTree {
    pub fn into_tree(self) -> Tree {
        let mut tree = Tree::from_row(self.row);
        for (no, row) in self.tasks {
            tree.insert_loaded(no, row);
        }
        for message in self.unread {
            tree.insert_unread(message);
        }
        for mark in self.keys {
            tree.insert_key(mark);
        }
        tree.loaded_all();
        tree
    }
}

/// The ending of a run that was followed by another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRow {
    pub run: RunNo,
    pub outcome: Arc<Outcome>,
    pub at: Time,
}

#[derive(Clone, Debug)]
pub struct TaskQuery {
    /// Only children of this owner.
    pub owner: Option<Owner>,
    /// Only tasks that have not ended.
    pub living: bool,
    /// Only numbers above this one.
    pub after: Option<TaskNo>,
    pub most: usize,
}

impl Default for TaskQuery {
    fn default() -> Self {
        Self { owner: None, living: false, after: None, most: usize::MAX }
    }
}

#[derive(Clone, Debug)]
pub struct EventQuery {
    /// Only this tree's.
    pub tree: Option<TreeId>,
    pub after: Position,
    pub most: usize,
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
pub struct Pruned {
    pub trees: u64,
    /// By themselves or with their tree.
    pub tasks: u64,
    pub events: u64,
}
