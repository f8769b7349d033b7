//! A session and all its tasks, as data in memory.
//!
//! Only rows are stored. Everything else is derived from them in one place: `TaskTree::edit`
//! compares a row before and after a change. It applies the difference to counters, queues, names
//! and timers. Loading a session inserts its rows the same way.

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
use crate::task::{ResultDelivery, StoredTask, TaskExtras, TaskRow};
use crate::task_table::TaskTable;
use crate::task_tree::message_keys::MessageKeys;

mod derive;
mod index;
mod links;
mod loading;
mod message_keys;
mod runtime_slots;

pub use index::KeyMark;
pub use message_keys::MessageKeyMark;

use runtime_slots::RuntimeSlots;

pub(crate) use index::KeyScope;

pub(crate) use derive::{TaskTimer, is_stopping_children};

/// The stored row of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    pub id: SessionId,
    pub name: SessionName,
    pub opened_at: Time,
    pub state: SessionState,
    pub limits: Limits,
    pub usage: Usage,
    /// The sequence number of the last event.
    pub seq: Seq,
    /// The time of the last event. A session's time does not run backwards.
    pub now: Time,
    pub last_task: Option<TaskNo>,
    pub last_message: MessageNo,
    pub epoch: Epoch,
    /// Values that its tasks share.
    #[serde(default, skip_serializing_if = "SharedValues::is_empty")]
    pub shared_values: SharedValues,
    /// Grants: calls that are allowed always.
    #[serde(default, skip_serializing_if = "ApprovalGrants::is_unused")]
    pub grants: ApprovalGrants,
    /// The meter of the session's spawn rate.
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

/// A message with its delivery state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageRow {
    pub message: Arc<Message>,
    pub receipt: Receipt,
}

/// A task with its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskView<'a> {
    pub(crate) no: TaskNo,
    pub(crate) row: &'a TaskRow,
}

impl TaskView<'_> {
    pub(crate) fn address(&self) -> String {
        self.row.address(self.no)
    }
}

#[derive(Clone, Debug)]
pub struct TaskTree {
    pub(crate) row: SessionRow,
    tasks: TaskTable<LoadedTask>,
    session_links: TreeLinks,
    names: HashTable<(u64, TaskNo)>,
    keys: HashTable<KeyMark>,
    /// The number of keys at which the keys of ended parents are removed.
    key_sweep_at: usize,
    message_keys: MessageKeys,
    /// Messages that were loaded to compare them with repeats, until the next eviction.
    loaded_messages: Vec<Arc<Message>>,
    timers: BTreeSet<(Time, TaskNo, TaskTimer)>,
    /// Tasks of stopped subtrees that have not been handled yet.
    pub(crate) sweep: VecDeque<TaskNo>,
    /// Tasks with a call that waits for an approval.
    pub(crate) awaiting_approval: BTreeSet<TaskNo>,
    /// Tasks that may be evicted from memory.
    evictable: Vec<TaskNo>,
    /// Ended tasks in memory whose owners are not. They are linked when the owners are loaded.
    orphans: BTreeSet<TaskNo>,
    runtime_slots: RuntimeSlots,
    /// The host of the processes that this writer starts. It is not stored here.
    host: Option<Arc<str>>,
    pub(crate) dirty: DirtyRows,
}

/// The rows that the next commit has to write, besides events.
#[derive(Clone, Debug, Default)]
pub struct ChangedRows {
    pub tasks: Vec<StoredTask>,
    pub messages: Vec<MessageRow>,
}

/// The changes since the last commit, with the numbers of changed tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirtyRows {
    pub(crate) tasks: Vec<TaskNo>,
    pub(crate) messages: Vec<MessageRow>,
}

#[derive(Clone, Debug)]
pub(crate) struct LoadedTask {
    /// The row, shared with its readers: the view and the stores hold the same one.
    pub(crate) row: Arc<TaskRow>,
    pub(crate) links: TreeLinks,
    previous: Option<TaskNo>,
    next: Option<TaskNo>,
    is_dirty: bool,
}

/// The links and counters of a session or task: children, inbox, queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct TreeLinks {
    first_child: Option<TaskNo>,
    last_child: Option<TaskNo>,
    /// Alive children that count for the width limit.
    pub(crate) alive_children: u32,
    /// Alive tasks anywhere in the subtree.
    pub(crate) alive_descendants: u32,
    /// Alive tasks to which its limits apply: descendants, and kept ones that passed to the
    /// session.
    pub(crate) limited_tasks: u32,
    /// The tasks of `limited_tasks` that hold a slot, and ended ones that have not returned.
    pub(crate) running: u32,
    /// The tasks of `limited_tasks` that queue for the runtime. Each has its place under the
    /// running limit, as if it ran.
    runtime_queued: u32,
    /// The number of alive tasks for each parked wait. It makes the cost of an end independent of
    /// the number of tasks waited for.
    pub(crate) wait_counts: Vec<WaitCount>,
    queues: Option<Box<OwnerQueues>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitCount {
    pub(crate) index: CallIndex,
    pub(crate) remaining: u32,
}

/// Queues that few nodes have.
#[derive(Clone, Debug, Default)]
struct OwnerQueues {
    inbox: VecDeque<Arc<Message>>,
    queue: BTreeSet<(Seq, TaskNo)>,
    /// The amount reserved by this task and all tasks under its limits.
    reserved: Usage,
}

impl TaskTree {
    pub fn row(&self) -> &SessionRow {
        &self.row
    }

    pub fn id(&self) -> SessionId {
        self.row.id
    }

    /// Returns the number of tasks in memory.
    pub fn loaded_count(&self) -> usize {
        self.tasks.len()
    }

    pub fn alive_count(&self) -> u32 {
        self.session_links.alive_descendants
    }

    pub fn get(&self, no: TaskNo) -> Option<&TaskRow> {
        self.tasks.get(no).map(|task| &*task.row)
    }

    pub(crate) fn view(&self, no: TaskNo) -> Option<TaskView<'_>> {
        Some(TaskView { no, row: self.get(no)? })
    }

    /// Returns all tasks in memory, in ascending order.
    pub fn rows(&self) -> impl Iterator<Item = (TaskNo, &TaskRow)> {
        self.tasks.iter().map(|(no, task)| (no, &*task.row))
    }

    /// Returns all tasks in memory with shared rows.
    pub fn shared_rows(&self) -> impl Iterator<Item = StoredTask> {
        self.tasks.iter().map(|(no, task)| StoredTask::new(no, task.row.clone()))
    }

    /// Returns whether the number was assigned, so that the store may have the task.
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

    /// Returns the number of alive descendants.
    pub fn alive_descendants(&self, no: TaskNo) -> u32 {
        self.tasks.get(no).map_or(0, |task| task.links.alive_descendants)
    }

    /// Returns the unread messages.
    pub fn inbox(&self, of: Owner) -> impl Iterator<Item = &Arc<Message>> {
        self.links(of)
            .and_then(|node| node.queues.as_ref())
            .into_iter()
            .flat_map(|queues| queues.inbox.iter())
    }

    pub fn unread_count(&self, of: Owner) -> usize {
        self.links(of).and_then(|node| node.queues.as_ref()).map_or(0, |queues| queues.inbox.len())
    }

    /// Returns the children in memory, in the order of their numbers unless one has changed its
    /// owner.
    pub fn children(&self, of: Owner) -> impl Iterator<Item = TaskNo> {
        let mut next = self.links(of).and_then(|node| node.first_child);
        std::iter::from_fn(move || {
            let no = next?;
            next = self.tasks.get(no).and_then(|task| task.next);
            Some(no)
        })
    }

    /// Returns the owners from `owner` up to the session.
    pub(crate) fn owner_chain(&self, owner: Owner) -> impl Iterator<Item = Owner> {
        let mut next = Some(owner);
        std::iter::from_fn(move || {
            let here = next?;
            next = here.task().and_then(|no| self.owner_of(no));
            Some(here)
        })
    }

    /// Returns the holders from `owner` up to the session whose limits apply. A kept task that
    /// passed to the session is still under its spawner here.
    pub(crate) fn limit_holders(&self, owner: Owner) -> impl Iterator<Item = Owner> {
        let mut next = Some(owner);
        std::iter::from_fn(move || {
            let here = next?;
            next = here.task().map(|no| self.limit_holder(no));
            Some(here)
        })
    }

    /// Returns the holders whose total limits count a spawn by `owner`: the alive ones of
    /// `limit_holders`, and the session. The total of an ended task no longer counts.
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

    /// Returns the nearest holder from `from` upwards whose running limit has no free place.
    pub(crate) fn full_limit_holder(&self, from: Owner) -> Option<Owner> {
        self.limit_holders(from).find(|&holder| {
            let limit = self.limits(holder).and_then(|limits| limits.running);
            let taken = self.links(holder).map_or(0, |node| node.running + node.runtime_queued);
            limit.is_some_and(|limit| taken >= limit)
        })
    }

    /// Returns the first task in the queue of a holder.
    pub(crate) fn queue_head(&self, holder: Owner) -> Option<TaskNo> {
        Some(self.links(holder)?.queues.as_ref()?.queue.first()?.1)
    }

    pub(crate) fn due_timer(&self, now: Time) -> Option<(TaskNo, TaskTimer)> {
        let (time, no, timer) = *self.timers.first()?;
        (time <= now).then_some((no, timer))
    }
}

impl TaskTree {
    /// Returns the amount that a task or session and all tasks under its limits have used and
    /// reserved.
    pub(crate) fn committed_usage(&self, of: Owner) -> Usage {
        let used = match of {
            Owner::Session => self.row.usage,
            Owner::Task(no) => self.get(no).map_or(Usage::NONE, TaskRow::usage),
        };
        let queues = self.links(of).and_then(|node| node.queues.as_ref());
        used.plus(queues.map_or(Usage::NONE, |queues| queues.reserved))
    }

    fn is_alive(&self, no: TaskNo) -> bool {
        self.get(no).is_some_and(TaskRow::is_alive)
    }
}

/// Two trees are equal when their stored parts are.
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
    /// Returns the top-level runs whose results are delivered to this client and conversation.
    pub(crate) fn client_runs(&self, client: &ClientCaller) -> impl Iterator<Item = TaskNo> {
        self.children(Owner::Session).filter(move |no| {
            self.get(*no).is_some_and(|row| {
                row.client.as_ref().is_some_and(|starter| client.receives_from(starter))
                    && row.ended().is_none_or(|ended| ended.delivery == ResultDelivery::Pending)
            })
        })
    }

    /// Returns the client that started the top-level run above a task; `None` is the operator. A
    /// kept task belongs to the starter of the task that kept it.
    pub(crate) fn started_by(&self, no: TaskNo) -> Option<&ClientIdentity> {
        let top = self.limit_holders(Owner::Task(no)).filter_map(Owner::task).last()?;
        self.get(top)?.client.as_ref()
    }

    pub(crate) fn extras(&self, no: TaskNo) -> Option<&TaskExtras> {
        self.get(no)?.extras.as_deref()
    }

    pub(crate) fn sweep_children(&mut self, of: Owner) {
        let alive: Vec<TaskNo> =
            self.children(of).filter(|no| self.get(*no).is_some_and(TaskRow::is_alive)).collect();
        self.sweep.extend(alive);
    }

    pub(crate) fn push_message(&mut self, message: Arc<Message>, receipt: Receipt) {
        if let Some(mark) = MessageKeyMark::of(&message) {
            self.insert_message_key(mark);
        }
        self.dirty.messages.push(MessageRow { message: message.clone(), receipt });
        self.insert_unread(message);
    }

    /// Takes a message out of an inbox with its final receipt.
    pub(crate) fn take_message(&mut self, of: Owner, no: MessageNo, receipt: Receipt) {
        let Some(queues) = self.links_mut(of).and_then(|node| node.queues.as_mut()) else { return };
        let Some(at) = queues.inbox.iter().position(|message| message.no == no) else { return };
        if let Some(message) = queues.inbox.remove(at) {
            self.dirty.messages.push(MessageRow { message, receipt });
        }
    }

    /// Adds to the usage of a task and of every holder whose limits apply to it.
    pub(crate) fn charge(&mut self, no: TaskNo, spent: Usage, unknown: Usage) {
        let mut here = Owner::Task(no);
        let mut descendants = Usage::NONE;
        while let Owner::Task(no) = here {
            self.edit(no, |row| {
                let extra = row.extras_mut();
                extra.usage = extra.usage.plus(spent);
                extra.descendants_usage = extra.descendants_usage.plus(descendants);
                extra.unknown_usage = extra.unknown_usage.plus(unknown);
            });
            descendants = spent;
            here = self.limit_holder(no);
        }
        self.row.usage = self.row.usage.plus(spent);
    }
}
