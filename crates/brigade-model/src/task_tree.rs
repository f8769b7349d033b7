//! A session and all tasks below it, as they are in memory.
//!
//! Rows are what is stored. All else here is derived from rows, in one place: [`Tree::edit`]
//! compares what a row says before and after a change and carries the difference into counters,
//! queues, names and timers. Loading a tree inserts its rows the same way.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashTable;
use serde::{Deserialize, Serialize};

use crate::approval::ApprovalGrants;
use crate::command::ClientCaller;
use crate::ids::{
    CallIndex, ClientIdentity, Epoch, MessageNo, Owner, Seq, SessionId, TaskNo, Time,
};
use crate::limits::{Limits, Usage};
use crate::message::{Message, Receipt};
use crate::name::SessionName;
use crate::shared_values::SharedValues;
use crate::spawn_rate::SpawnMeter;
use crate::task::{ResultDelivery, TaskExtras, TaskRow};
use crate::task_table::TaskTable;

mod derive;
mod index;
mod links;
mod loading;

pub use index::KeyMark;

pub(crate) use derive::{TaskTimer, is_stopping_children};

/// The stored form of a tree itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    pub id: SessionId,
    pub name: SessionName,
    pub opened_at: Time,
    pub state: SessionState,
    pub limits: Limits,
    pub usage: Usage,
    /// The last event.
    pub seq: Seq,
    /// The time of the last event: a tree's time does not run backwards.
    pub now: Time,
    pub last_task: Option<TaskNo>,
    pub last_message: MessageNo,
    pub epoch: Epoch,
    /// What its tasks share.
    #[serde(default, skip_serializing_if = "SharedValues::is_empty")]
    pub shared_values: SharedValues,
    /// What its operator allowed for good.
    #[serde(default, skip_serializing_if = "ApprovalGrants::is_unused")]
    pub grants: ApprovalGrants,
    /// Where a spawn rate counts what is spawned.
    #[serde(default, skip_serializing_if = "SpawnMeter::is_unused")]
    pub spawn_meter: SpawnMeter,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    Open,
    Closing,
    Closed,
}

/// A message with how far it has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageRow {
    pub message: Arc<Message>,
    pub receipt: Receipt,
}

#[derive(Clone, Debug)]
pub struct TaskTree {
    pub(crate) row: SessionRow,
    tasks: TaskTable<LoadedTask>,
    session_links: TreeLinks,
    names: HashTable<(u64, TaskNo)>,
    keys: HashTable<KeyMark>,
    /// How many keys there may be before those of ended parents are looked for.
    key_sweep_at: usize,
    timers: BTreeSet<(Time, TaskNo, TaskTimer)>,
    /// Tasks of stopped subtrees that have not been looked at yet.
    pub(crate) sweep: VecDeque<TaskNo>,
    /// Tasks with a call that waits for an approval.
    pub(crate) awaiting_approval: BTreeSet<TaskNo>,
    /// Tasks that may leave memory.
    evictable: Vec<TaskNo>,
    /// Ended tasks in memory whose owners are not: they are linked when those come back.
    orphans: BTreeSet<TaskNo>,
    pub(crate) dirty: DirtyRows,
}

/// What the next commit has to write, besides events.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirtyRows {
    pub(crate) tasks: Vec<TaskNo>,
    pub(crate) messages: Vec<MessageRow>,
}

#[derive(Clone, Debug)]
pub(crate) struct LoadedTask {
    /// Shared with whoever reads it: the view and the stores keep the same one.
    pub(crate) row: Arc<TaskRow>,
    pub(crate) links: TreeLinks,
    previous: Option<TaskNo>,
    next: Option<TaskNo>,
    is_dirty: bool,
}

/// What a session and a task have in common: children and an inbox.
#[derive(Clone, Debug, Default)]
pub(crate) struct TreeLinks {
    first_child: Option<TaskNo>,
    last_child: Option<TaskNo>,
    /// Living children.
    pub(crate) alive_children: u32,
    /// Living tasks anywhere below.
    pub(crate) alive_descendants: u32,
    /// Living tasks for which its limits hold: those below, and kept ones that passed to the session.
    pub(crate) limited_tasks: u32,
    /// Of those, and of ended ones that have not returned, how many hold a slot.
    pub(crate) running: u32,
    /// For each parked wait, how many of its tasks still live: an ending costs one step, whatever
    /// the number of tasks waited for.
    pub(crate) wait_counts: Vec<WaitCount>,
    queues: Option<Box<OwnerQueues>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitCount {
    pub(crate) index: CallIndex,
    pub(crate) remaining: u32,
}

/// What gathers at some nodes only.
#[derive(Clone, Debug, Default)]
struct OwnerQueues {
    inbox: VecDeque<Arc<Message>>,
    queue: BTreeSet<(Seq, TaskNo)>,
    /// Set aside by this task and all under its limits.
    reserved: Usage,
}

impl TaskTree {
    pub fn row(&self) -> &SessionRow {
        &self.row
    }

    pub fn id(&self) -> SessionId {
        self.row.id
    }

    /// How many tasks are in memory.
    pub fn loaded_count(&self) -> usize {
        self.tasks.len()
    }

    pub fn alive_count(&self) -> u32 {
        self.session_links.alive_descendants
    }

    pub fn get(&self, no: TaskNo) -> Option<&TaskRow> {
        self.tasks.get(no).map(|task| &*task.row)
    }

    /// All tasks in memory, in ascending order.
    pub fn rows(&self) -> impl Iterator<Item = (TaskNo, &TaskRow)> {
        self.tasks.iter().map(|(no, task)| (no, &*task.row))
    }

    /// The same, to be kept by whoever asks.
    pub fn shared_rows(&self) -> impl Iterator<Item = (TaskNo, &Arc<TaskRow>)> {
        self.tasks.iter().map(|(no, task)| (no, &task.row))
    }

    /// Whether it could still exist in the store.
    pub fn has_assigned(&self, no: TaskNo) -> bool {
        self.row.last_task.is_some_and(|last| no <= last)
    }

    pub fn next_due(&self) -> Option<Time> {
        self.timers.first().map(|(time, ..)| *time)
    }

    pub fn has_sweep(&self) -> bool {
        !self.sweep.is_empty()
    }

    pub fn owner_of(&self, no: TaskNo) -> Option<Owner> {
        Some(self.get(no)?.owner)
    }

    /// Living tasks below `no`.
    pub fn alive_descendants(&self, no: TaskNo) -> u32 {
        self.tasks.get(no).map_or(0, |task| task.links.alive_descendants)
    }

    /// Unread messages.
    pub fn inbox(&self, of: Owner) -> impl Iterator<Item = &Arc<Message>> {
        self.links(of)
            .and_then(|node| node.queues.as_ref())
            .into_iter()
            .flat_map(|c| c.inbox.iter())
    }

    pub fn unread_count(&self, of: Owner) -> usize {
        self.links(of).and_then(|node| node.queues.as_ref()).map_or(0, |crowd| crowd.inbox.len())
    }

    /// Children in memory, in the order of their numbers unless one was passed on.
    pub fn children(&self, of: Owner) -> impl Iterator<Item = TaskNo> {
        let mut next = self.links(of).and_then(|node| node.first_child);
        std::iter::from_fn(move || {
            let no = next?;
            next = self.tasks.get(no).and_then(|task| task.next);
            Some(no)
        })
    }

    /// From `owner` up to the session.
    pub(crate) fn owner_chain(&self, owner: Owner) -> impl Iterator<Item = Owner> {
        let mut next = Some(owner);
        std::iter::from_fn(move || {
            let here = next?;
            next = here.task().and_then(|no| self.owner_of(no));
            Some(here)
        })
    }

    /// From `owner` up to the session, along those whose limits hold. A kept task that passed to the
    /// session is still below the task that spawned it here.
    pub(crate) fn limit_holders(&self, owner: Owner) -> impl Iterator<Item = Owner> {
        let mut next = Some(owner);
        std::iter::from_fn(move || {
            let here = next?;
            next = here.task().map(|no| self.limit_holder(no));
            Some(here)
        })
    }

    /// Holders whose total limits count what `owner` spawns: those of `limit_holders` that live, and the
    /// session. The total of a task that has ended counts for nobody any more.
    pub(crate) fn total_holders(&self, owner: Owner) -> impl Iterator<Item = Owner> {
        self.limit_holders(owner).filter(|holder| holder.task().is_none_or(|no| self.is_alive(no)))
    }

    pub(crate) fn limit_holder(&self, no: TaskNo) -> Owner {
        self.get(no).map_or(Owner::Session, TaskRow::limit_holder)
    }

    pub(crate) fn links(&self, of: Owner) -> Option<&TreeLinks> {
        match of {
            Owner::Session => Some(&self.session_links),
            Owner::Task(no) => self.tasks.get(no).map(|task| &task.links),
        }
    }

    fn links_mut(&mut self, of: Owner) -> Option<&mut TreeLinks> {
        match of {
            Owner::Session => Some(&mut self.session_links),
            Owner::Task(no) => self.tasks.get_mut(no).map(|task| &mut task.links),
        }
    }

    pub(crate) fn limits(&self, of: Owner) -> Option<&Limits> {
        match of {
            Owner::Session => Some(&self.row.limits),
            Owner::Task(no) => self.get(no)?.limits.as_deref(),
        }
    }

    /// The nearest holder at or above `from` whose running limit is reached.
    pub(crate) fn full_limit_holder(&self, from: Owner) -> Option<Owner> {
        self.limit_holders(from).find(|&holder| {
            let limit = self.limits(holder).and_then(|limits| limits.running);
            let running = self.links(holder).map_or(0, |node| node.running);
            limit.is_some_and(|limit| running >= limit)
        })
    }

    /// Who is next in the queue of a holder.
    pub(crate) fn queue_head(&self, holder: Owner) -> Option<TaskNo> {
        Some(self.links(holder)?.queues.as_ref()?.queue.first()?.1)
    }

    pub(crate) fn due_timer(&self, now: Time) -> Option<(TaskNo, TaskTimer)> {
        let (time, no, timer) = *self.timers.first()?;
        (time <= now).then_some((no, timer))
    }
}

/// Building and changing.
impl TaskTree {
    /// What a task or session and all under its limits have used and set aside.
    pub(crate) fn committed_usage(&self, of: Owner) -> Usage {
        let used = match of {
            Owner::Session => self.row.usage,
            Owner::Task(no) => self.get(no).map_or(Usage::NONE, TaskRow::usage),
        };
        let crowd = self.links(of).and_then(|node| node.queues.as_ref());
        used.plus(crowd.map_or(Usage::NONE, |crowd| crowd.reserved))
    }

    fn is_alive(&self, no: TaskNo) -> bool {
        self.get(no).is_some_and(TaskRow::is_alive)
    }
}

/// Two trees are equal when what is stored of them is.
impl PartialEq for TaskTree {
    fn eq(&self, other: &Self) -> bool {
        let unread = |tree: &Self| -> Vec<MessageNo> {
            let mut all: Vec<MessageNo> = tree.inbox(Owner::Session).map(|m| m.no).collect();
            for (no, _) in tree.rows() {
                all.extend(tree.inbox(Owner::Task(no)).map(|m| m.no));
            }
            all
        };
        self.row == other.row && self.rows().eq(other.rows()) && unread(self) == unread(other)
    }
}

impl TaskTree {
    /// Runs whose results wait at top level for this client and conversation.
    pub(crate) fn client_runs(&self, client: &ClientCaller) -> impl Iterator<Item = TaskNo> {
        self.children(Owner::Session).filter(move |no| {
            self.get(*no).is_some_and(|row| {
                row.client.as_ref().is_some_and(|starter| client.receives_from(starter))
                    && row.ended().is_none_or(|ended| ended.delivery == ResultDelivery::Pending)
            })
        })
    }

    /// The client that started the top-level run which a task came of; `None` is the operator. A kept
    /// task is of whoever started what kept it.
    pub(crate) fn started_by(&self, no: TaskNo) -> Option<&ClientIdentity> {
        let top = self.limit_holders(Owner::Task(no)).filter_map(Owner::task).last()?;
        self.get(top)?.client.as_ref()
    }

    /// What of a task is seldom there, for reading.
    pub(crate) fn extras(&self, no: TaskNo) -> Option<&TaskExtras> {
        self.get(no)?.extras.as_deref()
    }

    pub(crate) fn sweep_children(&mut self, of: Owner) {
        let living: Vec<TaskNo> =
            self.children(of).filter(|no| self.get(*no).is_some_and(TaskRow::is_alive)).collect();
        self.sweep.extend(living);
    }

    pub(crate) fn push_message(&mut self, message: Arc<Message>, receipt: Receipt) {
        self.dirty.messages.push(MessageRow { message: message.clone(), receipt });
        self.insert_unread(message);
    }

    /// Takes a message out of an inbox with its final receipt.
    pub(crate) fn take_message(&mut self, of: Owner, no: MessageNo, receipt: Receipt) {
        let Some(crowd) = self.links_mut(of).and_then(|node| node.queues.as_mut()) else { return };
        let Some(at) = crowd.inbox.iter().position(|message| message.no == no) else { return };
        if let Some(message) = crowd.inbox.remove(at) {
            self.dirty.messages.push(MessageRow { message, receipt });
        }
    }

    /// Adds to what a task and everything whose limits hold for it has used.
    pub(crate) fn charge(&mut self, no: TaskNo, spent: Usage, unknown: Usage) {
        let mut here = Owner::Task(no);
        let mut below = Usage::NONE;
        while let Owner::Task(no) = here {
            self.edit(no, |row| {
                let extra = row.extras_mut();
                extra.usage = extra.usage.plus(spent);
                extra.descendants_usage = extra.descendants_usage.plus(below);
                extra.unknown_usage = extra.unknown_usage.plus(unknown);
            });
            below = spent;
            here = self.limit_holder(no);
        }
        self.row.usage = self.row.usage.plus(spent);
    }
}
