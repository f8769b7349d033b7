//! A session and all tasks below it, as they are in memory.
//!
//! Rows are what is stored. All else here is derived from rows, in one place: [`Tree::edit`]
//! compares what a row says before and after a change and carries the difference into counters,
//! queues, names and timers. Loading a tree inserts its rows the same way.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashTable;
use serde::{Deserialize, Serialize};

use crate::call::Condition;
use crate::ids::{
    CallIndex, ClientName, Epoch, MessageNo, Owner, RunNo, Seq, TaskNo, Time, TreeId,
};
use crate::limits::{Limits, Usage};
use crate::message::{Message, Receipt};
use crate::name::{Key, Name, SessionName};
use crate::slots::Slots;
use crate::task::{Clock, Delivery, Extra, QueuedWhy, State, TaskRow};

const KEYS_FULL: usize = 1024;

/// The stored form of a tree itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeRow {
    pub id: TreeId,
    pub name: SessionName,
    pub opened: Time,
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

/// What an evicted keyed child leaves behind, so that its key stays taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMark {
    hash: [u32; 2],
    pub owner: Owner,
    pub no: TaskNo,
}

impl KeyMark {
    pub fn new(owner: Owner, run: RunNo, key: &Key, no: TaskNo) -> Self {
        let hash = key_hash(owner, run, key);
        Self { hash: [(hash >> 32) as u32, hash as u32], owner, no }
    }

    fn hash(&self) -> u64 {
        u64::from(self.hash[0]) << 32 | u64::from(self.hash[1])
    }
}

#[derive(Clone, Debug)]
pub struct Tree {
    pub(crate) row: TreeRow,
    tasks: Slots<Task>,
    session: Node,
    names: HashTable<(u64, TaskNo)>,
    keys: HashTable<KeyMark>,
    /// How many keys there may be before those of ended parents are looked for.
    keys_full: usize,
    timers: BTreeSet<(Time, TaskNo, Timer)>,
    /// Tasks of stopped subtrees that have not been looked at yet.
    pub(crate) sweep: VecDeque<TaskNo>,
    /// Tasks that may leave memory.
    evictable: Vec<TaskNo>,
    /// Ended tasks in memory whose owners are not: they are linked when those come back.
    orphans: BTreeSet<TaskNo>,
    pub(crate) touched: Touched,
}

/// What the next commit has to write, besides events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    pub(crate) tasks: Vec<TaskNo>,
    pub(crate) messages: Vec<MessageRow>,
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) row: TaskRow,
    pub(crate) node: Node,
    previous: Option<TaskNo>,
    next: Option<TaskNo>,
    touched: bool,
}

/// What a session and a task have in common: children and an inbox.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    first: Option<TaskNo>,
    last: Option<TaskNo>,
    /// Living children.
    pub(crate) children: u32,
    /// Living tasks anywhere below.
    pub(crate) below: u32,
    /// Tasks below that hold a slot.
    pub(crate) running: u32,
    /// For each parked wait, how many of its tasks still live: an ending costs one step, whatever
    /// the number of tasks waited for.
    pub(crate) waits: Vec<Wait>,
    crowd: Option<Box<Crowd>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) index: CallIndex,
    pub(crate) left: u32,
}

/// What gathers at some nodes only.
#[derive(Clone, Debug, Default)]
struct Crowd {
    inbox: VecDeque<Arc<Message>>,
    queue: BTreeSet<(Seq, TaskNo)>,
    /// Set aside by this task and all below it.
    reserved: Usage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A parked call's time is up.
    Call(CallIndex),
    /// A stop becomes firm, or gives up.
    Stop,
    /// The run's time limit.
    Limit,
    /// No progress for too long.
    Stall,
    /// Try again after a crash.
    Backoff,
}

/// The derived side of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Facts {
    living: bool,
    slot: bool,
    queue: Option<(Owner, Seq)>,
    timers: [Option<(Time, Timer)>; 2],
    reserved: Usage,
}

impl Facts {
    const NOTHING: Self =
        Self { living: false, slot: false, queue: None, timers: [None; 2], reserved: Usage::NONE };
}

impl Tree {
    pub fn row(&self) -> &TreeRow {
        &self.row
    }

    pub fn id(&self) -> TreeId {
        self.row.id
    }

    /// How many tasks are in memory.
    pub fn loaded(&self) -> usize {
        self.tasks.len()
    }

    pub fn living(&self) -> u32 {
        self.session.below
    }

    pub fn get(&self, no: TaskNo) -> Option<&TaskRow> {
        self.tasks.get(no).map(|task| &task.row)
    }

    /// All tasks in memory, in ascending order.
    pub fn rows(&self) -> impl Iterator<Item = (TaskNo, &TaskRow)> {
        self.tasks.iter().map(|(no, task)| (no, &task.row))
    }

    /// Whether it could still exist in the store.
    pub fn was_numbered(&self, no: TaskNo) -> bool {
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
    pub fn living_below(&self, no: TaskNo) -> u32 {
        self.tasks.get(no).map_or(0, |task| task.node.below)
    }

    /// Unread messages.
    pub fn inbox(&self, of: Owner) -> impl Iterator<Item = &Arc<Message>> {
        self.node(of).and_then(|node| node.crowd.as_ref()).into_iter().flat_map(|c| c.inbox.iter())
    }

    pub fn unread(&self, of: Owner) -> usize {
        self.node(of).and_then(|node| node.crowd.as_ref()).map_or(0, |crowd| crowd.inbox.len())
    }

    /// Children in memory, in the order of their numbers unless one was passed on.
    pub fn children(&self, of: Owner) -> impl Iterator<Item = TaskNo> {
        let mut next = self.node(of).and_then(|node| node.first);
        std::iter::from_fn(move || {
            let no = next?;
            next = self.tasks.get(no).and_then(|task| task.next);
            Some(no)
        })
    }

    /// From `owner` up to the session.
    pub(crate) fn upwards(&self, owner: Owner) -> impl Iterator<Item = Owner> {
        let mut next = Some(owner);
        std::iter::from_fn(move || {
            let here = next?;
            next = here.task().and_then(|no| self.owner_of(no));
            Some(here)
        })
    }

    pub(crate) fn node(&self, of: Owner) -> Option<&Node> {
        match of {
            Owner::Session => Some(&self.session),
            Owner::Task(no) => self.tasks.get(no).map(|task| &task.node),
        }
    }

    fn node_mut(&mut self, of: Owner) -> Option<&mut Node> {
        match of {
            Owner::Session => Some(&mut self.session),
            Owner::Task(no) => self.tasks.get_mut(no).map(|task| &mut task.node),
        }
    }

    pub(crate) fn limits(&self, of: Owner) -> Option<&Limits> {
        match of {
            Owner::Session => Some(&self.row.limits),
            Owner::Task(no) => self.get(no)?.limits.as_deref(),
        }
    }

    /// The nearest holder at or above `from` whose running limit is reached.
    pub(crate) fn full_above(&self, from: Owner) -> Option<Owner> {
        self.upwards(from).find(|&holder| {
            let limit = self.limits(holder).and_then(|limits| limits.running);
            let running = self.node(holder).map_or(0, |node| node.running);
            limit.is_some_and(|limit| running >= limit)
        })
    }

    /// Who is next in the queue of a holder.
    pub(crate) fn queue_head(&self, holder: Owner) -> Option<TaskNo> {
        Some(self.node(holder)?.crowd.as_ref()?.queue.first()?.1)
    }

    pub(crate) fn due(&self, now: Time) -> Option<(TaskNo, Timer)> {
        let (time, no, timer) = *self.timers.first()?;
        (time <= now).then_some((no, timer))
    }

    pub(crate) fn living_named(&self, owner: Owner, name: &Name) -> Option<TaskNo> {
        let hash = name_hash(owner, name);
        let found = self.names.find(hash, |&(other, no)| {
            other == hash
                && self.tasks.get(no).is_some_and(|task| {
                    task.row.owner == owner
                        && task.row.name.as_ref().is_some_and(|n| n.same_as(name))
                })
        });
        found.map(|(_, no)| *no)
    }

    pub(crate) fn keyed(&self, owner: Owner, run: RunNo, key: &Key) -> Option<KeyMark> {
        let hash = key_hash(owner, run, key);
        self.keys
            .find(hash, |mark| {
                mark.hash() == hash
                    && self.tasks.get(mark.no).is_none_or(|task| {
                        task.row.owner_run == run && task.row.spec.key.as_ref() == Some(key)
                    })
            })
            .copied()
    }
}

/// Building and changing.
impl Tree {
    /// A tree in memory from its stored row, without tasks.
    pub fn from_row(row: TreeRow) -> Self {
        Self {
            row,
            tasks: Slots::default(),
            session: Node::default(),
            names: HashTable::new(),
            keys: HashTable::new(),
            keys_full: KEYS_FULL,
            timers: BTreeSet::new(),
            sweep: VecDeque::new(),
            evictable: Vec::new(),
            orphans: BTreeSet::new(),
            touched: Touched::default(),
        }
    }

    /// Brings a stored task into memory.
    ///
    /// A tree is loaded with every task that lives or lingers, every uncollected result of a living
    /// owner or a client, every task that a parked wait names, and all that is above one of these.
    /// Parents come before their children.
    pub fn insert_loaded(&mut self, no: TaskNo, row: TaskRow) {
        if self.tasks.get(no).is_some() {
            return;
        }
        let evictable = !row.is_living();
        self.insert(no, row);
        self.link_orphans();
        if evictable {
            self.evictable.push(no);
        }
    }

    /// Brings an unread message into memory, in the order in which they were sent.
    pub fn insert_unread(&mut self, message: Arc<Message>) {
        let to = message.to;
        if let Some(node) = self.node_mut(to) {
            node.crowd.get_or_insert_default().inbox.push_back(message);
        }
    }

    /// Keeps an evicted child's key taken.
    pub fn insert_key(&mut self, mark: KeyMark) {
        if self.keys.len() >= self.keys_full {
            let tasks = &self.tasks;
            self.keys.retain(|mark| match mark.owner {
                Owner::Session => true,
                Owner::Task(owner) => tasks.get(owner).is_some_and(|task| task.row.is_living()),
            });
            self.keys_full = (self.keys.len() * 2).max(KEYS_FULL);
        }
        if self.keys.find(mark.hash(), |other| *other == mark).is_none() {
            self.keys.insert_unique(mark.hash(), mark, KeyMark::hash);
        }
    }

    /// Completes loading: stops that were under way go on.
    pub fn loaded_all(&mut self) {
        let ending: Vec<TaskNo> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.row.is_living() && sweeps_children(&task.row))
            .map(|(no, _)| no)
            .collect();
        for no in ending {
            self.sweep_children(Owner::Task(no));
        }
        if self.row.state == SessionState::Closing {
            self.sweep_children(Owner::Session);
        }
        let waiting: Vec<TaskNo> = self.tasks.iter().map(|(no, _)| no).collect();
        for no in waiting {
            self.recount_waits(no);
        }
        self.evictable.clear();
        let ended = self.tasks.iter().filter(|(_, task)| !task.row.is_living());
        self.evictable = ended.map(|(no, _)| no).collect();
        // Children leave before their parents, so that few are ever left without one.
        self.evictable.reverse();
    }

    pub(crate) fn insert(&mut self, no: TaskNo, row: TaskRow) {
        let owner = row.owner;
        if let Some(key) = &row.spec.key {
            self.insert_key(KeyMark::new(owner, row.owner_run, key, no));
        }
        let task = Task { row, node: Node::default(), previous: None, next: None, touched: false };
        self.tasks.insert(no, task);
        self.link(no, owner);
        self.derive(no, None);
    }

    /// The one way to change a row.
    pub(crate) fn edit(&mut self, no: TaskNo, change: impl FnOnce(&mut TaskRow)) {
        let Some(task) = self.tasks.get_mut(no) else { return };
        let before = Facts::of(&task.row);
        change(&mut task.row);
        if !task.touched {
            task.touched = true;
            self.touched.tasks.push(no);
        }
        self.derive(no, Some(before));
    }

    pub(crate) fn touch(&mut self, no: TaskNo) {
        self.edit(no, |_| {});
    }

    /// Carries the difference between `before` and the row as it is now into what is derived.
    fn derive(&mut self, no: TaskNo, before: Option<Facts>) {
        let Some(task) = self.tasks.get(no) else { return };
        let (before, after) = (before.unwrap_or(Facts::NOTHING), Facts::of(&task.row));
        if before == after {
            return;
        }
        let owner = task.row.owner;
        if before.living != after.living {
            self.count_living(no, owner, after.living);
        }
        if before.slot != after.slot {
            self.count_slot(no, after.slot);
        }
        if before.queue != after.queue {
            if let Some((holder, ticket)) = before.queue
                && let Some(crowd) = self.node_mut(holder).and_then(|n| n.crowd.as_mut())
            {
                crowd.queue.remove(&(ticket, no));
            }
            if let Some((holder, ticket)) = after.queue
                && let Some(node) = self.node_mut(holder)
            {
                node.crowd.get_or_insert_default().queue.insert((ticket, no));
            }
        }
        if before.reserved != after.reserved {
            self.count_reserved(Owner::Task(no), before.reserved, after.reserved);
        }
        if before.timers != after.timers {
            for (time, timer) in before.timers.into_iter().flatten() {
                self.timers.remove(&(time, no, timer));
            }
            for (time, timer) in after.timers.into_iter().flatten() {
                self.timers.insert((time, no, timer));
            }
        }
    }

    fn count_living(&mut self, no: TaskNo, owner: Owner, now_living: bool) {
        let step = |count: &mut u32| {
            *count = if now_living { *count + 1 } else { count.saturating_sub(1) };
        };
        if let Some(node) = self.node_mut(owner) {
            step(&mut node.children);
        }
        let mut here = Some(owner);
        while let Some(holder) = here {
            if let Some(node) = self.node_mut(holder) {
                step(&mut node.below);
            }
            here = holder.task().and_then(|no| self.owner_of(no));
        }
        self.set_bearer(no, now_living);
        if !now_living {
            self.evictable_children(no);
            self.evictable.push(no);
        }
    }

    /// Results that an ended owner left behind can leave memory too.
    fn evictable_children(&mut self, no: TaskNo) {
        let mut children: Vec<TaskNo> = self.children(Owner::Task(no)).collect();
        self.evictable.append(&mut children);
    }

    fn count_slot(&mut self, no: TaskNo, holds: bool) {
        let mut here = self.owner_of(no);
        while let Some(holder) = here {
            if let Some(node) = self.node_mut(holder) {
                node.running =
                    if holds { node.running + 1 } else { node.running.saturating_sub(1) };
            }
            here = holder.task().and_then(|no| self.owner_of(no));
        }
    }

    fn count_reserved(&mut self, from: Owner, before: Usage, after: Usage) {
        let mut here = Some(from);
        while let Some(holder) = here {
            if let Some(node) = self.node_mut(holder) {
                let crowd = node.crowd.get_or_insert_default();
                crowd.reserved = crowd.reserved.minus(before).plus(after);
            }
            here = holder.task().and_then(|no| self.owner_of(no));
        }
    }

    /// What a task or session and all below it have used and set aside.
    pub(crate) fn committed_usage(&self, of: Owner) -> Usage {
        let used = match of {
            Owner::Session => self.row.usage,
            Owner::Task(no) => self.get(no).map_or(Usage::NONE, TaskRow::usage),
        };
        let crowd = self.node(of).and_then(|node| node.crowd.as_ref());
        used.plus(crowd.map_or(Usage::NONE, |crowd| crowd.reserved))
    }

    fn set_bearer(&mut self, no: TaskNo, bears: bool) {
        let Some(task) = self.tasks.get(no) else { return };
        let Some(name) = &task.row.name else { return };
        let hash = name_hash(task.row.owner, name);
        if bears {
            self.names.insert_unique(hash, (hash, no), |(hash, _)| *hash);
        } else if let Ok(entry) = self.names.find_entry(hash, |&(_, other)| other == no) {
            entry.remove();
        }
    }

    /// Hands a living task to another owner, with all the counting that hangs on it.
    pub(crate) fn rehome(&mut self, no: TaskNo, owner: Owner, drop_name: bool) {
        let Some(task) = self.tasks.get(no) else { return };
        let (old, living) = (task.row.owner, task.row.is_living());
        let (below, running) =
            (task.node.below, task.node.running + u32::from(task.row.holds_slot()));
        let whole = below + u32::from(living);
        let reserved = task.node.crowd.as_ref().map_or(Usage::NONE, |crowd| crowd.reserved);
        self.count_reserved(old, reserved, Usage::NONE);
        let mut here = Some(old);
        while let Some(holder) = here {
            if let Some(node) = self.node_mut(holder) {
                node.below = node.below.saturating_sub(whole);
                node.running = node.running.saturating_sub(running);
            }
            here = holder.task().and_then(|no| self.owner_of(no));
        }
        if let Some(node) = self.node_mut(old) {
            node.children = node.children.saturating_sub(u32::from(living));
        }
        if living {
            self.set_bearer(no, false);
        }
        self.unlink(no);
        if let Some(task) = self.tasks.get_mut(no) {
            task.row.owner = owner;
            if owner != old {
                // Its key belongs to the run that spawned it, which is none of the new owner's.
                task.row.owner_run = RunNo::NONE;
            }
            if drop_name {
                task.row.name = None;
            }
        }
        self.link(no, owner);
        if living {
            self.set_bearer(no, true);
        }
        self.count_reserved(owner, Usage::NONE, reserved);
        let mut here = Some(owner);
        while let Some(holder) = here {
            if let Some(node) = self.node_mut(holder) {
                node.below += whole;
                node.running += running;
            }
            here = holder.task().and_then(|no| self.owner_of(no));
        }
        if let Some(node) = self.node_mut(owner) {
            node.children += u32::from(living);
        }
        self.touch(no);
    }

    /// Links what has waited in memory for its owner to come back.
    fn link_orphans(&mut self) {
        for no in std::mem::take(&mut self.orphans) {
            if let Some(owner) = self.owner_of(no) {
                self.link(no, owner);
            }
        }
    }

    /// What is below an owner that leaves memory is linked to nobody.
    fn orphan_children(&mut self, owner: TaskNo) {
        let children: Vec<TaskNo> = self.children(Owner::Task(owner)).collect();
        for no in children {
            if let Some(task) = self.tasks.get_mut(no) {
                (task.previous, task.next) = (None, None);
            }
            self.orphans.insert(no);
        }
    }

    fn link(&mut self, no: TaskNo, owner: Owner) {
        let Some(node) = self.node_mut(owner) else {
            self.orphans.insert(no);
            return;
        };
        let last = node.last.replace(no);
        node.first.get_or_insert(no);
        if let Some(last) = last.and_then(|last| self.tasks.get_mut(last)) {
            last.next = Some(no);
        }
        if let Some(task) = self.tasks.get_mut(no) {
            task.previous = last;
            task.next = None;
        }
    }

    fn unlink(&mut self, no: TaskNo) {
        let Some(task) = self.tasks.get_mut(no) else { return };
        let (owner, previous, next) = (task.row.owner, task.previous.take(), task.next.take());
        if let Some(previous) = previous.and_then(|no| self.tasks.get_mut(no)) {
            previous.next = next;
        }
        if let Some(next) = next.and_then(|no| self.tasks.get_mut(no)) {
            next.previous = previous;
        }
        match self.node_mut(owner) {
            Some(node) => {
                if node.first == Some(no) {
                    node.first = next;
                }
                if node.last == Some(no) {
                    node.last = previous;
                }
            }
            None => {
                self.orphans.remove(&no);
            }
        }
    }

    pub(crate) fn sweep_children(&mut self, of: Owner) {
        let living: Vec<TaskNo> =
            self.children(of).filter(|no| self.get(*no).is_some_and(TaskRow::is_living)).collect();
        self.sweep.extend(living);
    }

    /// Counts anew what the parked waits of a task are waiting for.
    pub(crate) fn recount_waits(&mut self, no: TaskNo) {
        let Some(task) = self.tasks.get(no) else { return };
        if task.row.calls.is_empty() && task.node.waits.is_empty() {
            return;
        }
        let counted = task.row.calls.iter().filter_map(|call| match &call.on {
            Condition::Tasks(wait) => {
                let left = wait.tasks.iter().filter(|no| self.lives(**no)).count();
                Some(Wait { index: call.index, left: u32::try_from(left).unwrap_or(u32::MAX) })
            }
            _ => None,
        });
        let waits = counted.collect();
        if let Some(task) = self.tasks.get_mut(no) {
            task.node.waits = waits;
        }
    }

    fn lives(&self, no: TaskNo) -> bool {
        self.get(no).is_some_and(TaskRow::is_living)
    }

    /// Tells the parked waits of an owner that one of its children ended.
    pub(crate) fn count_down_waits(&mut self, owner: TaskNo, child: TaskNo) {
        let Some(task) = self.tasks.get_mut(owner) else { return };
        for wait in &mut task.node.waits {
            let call = task.row.calls.iter().find(|call| call.index == wait.index);
            if let Some(Condition::Tasks(on)) = call.map(|call| &call.on)
                && on.tasks.binary_search(&child).is_ok()
            {
                wait.left = wait.left.saturating_sub(1);
            }
        }
    }

    pub(crate) fn push_message(&mut self, message: Arc<Message>, receipt: Receipt) {
        self.touched.messages.push(MessageRow { message: message.clone(), receipt });
        self.insert_unread(message);
    }

    /// Takes a message out of an inbox with its final receipt.
    pub(crate) fn take_message(&mut self, of: Owner, no: MessageNo, receipt: Receipt) {
        let Some(crowd) = self.node_mut(of).and_then(|node| node.crowd.as_mut()) else { return };
        let Some(at) = crowd.inbox.iter().position(|message| message.no == no) else { return };
        if let Some(message) = crowd.inbox.remove(at) {
            self.touched.messages.push(MessageRow { message, receipt });
        }
    }

    /// Adds to what a task and everything above it has used.
    pub(crate) fn charge(&mut self, no: TaskNo, spent: Usage) {
        let mut here = Owner::Task(no);
        while let Owner::Task(no) = here {
            self.edit(no, |row| {
                let extra = row.extra_mut();
                extra.usage = extra.usage.plus(spent);
            });
            here = self.owner_of(no).unwrap_or(Owner::Session);
        }
        self.row.usage = self.row.usage.plus(spent);
    }

    /// Lets go of every task that nobody needs in memory. Returns their numbers.
    pub fn evict(&mut self) -> Vec<TaskNo> {
        let mut gone = Vec::new();
        for no in std::mem::take(&mut self.evictable) {
            if self.can_evict(no) {
                self.unlink(no);
                self.orphan_children(no);
                self.tasks.remove(no);
                gone.push(no);
            } else if self.tasks.get(no).is_some_and(|task| task.touched) {
                self.evictable.push(no);
            }
        }
        gone
    }

    fn can_evict(&self, no: TaskNo) -> bool {
        let Some(task) = self.tasks.get(no) else { return false };
        let Some(ended) = task.row.ended() else { return false };
        let wanted = !task.row.is_collected()
            && match task.row.owner {
                // The operator reads results by their address, and collects nothing.
                Owner::Session => task.row.client.is_some(),
                Owner::Task(owner) => self.lives(owner),
            };
        let waited = task.row.owner.task().is_some_and(|owner| {
            self.tasks.get(owner).is_some_and(|owner| !owner.node.waits.is_empty())
        });
        // Slots are counted along the owners, so they stay while something below holds one.
        let counting = task.node.below > 0 || task.node.running > 0;
        !ended.lingering && !wanted && !waited && !task.touched && !counting
    }

    /// Takes what the next commit has to write.
    pub fn take_touched(&mut self) -> (Vec<(TaskNo, TaskRow)>, Vec<MessageRow>) {
        let touched = std::mem::take(&mut self.touched);
        let mut rows = Vec::with_capacity(touched.tasks.len());
        for no in touched.tasks {
            if let Some(task) = self.tasks.get_mut(no) {
                task.touched = false;
                rows.push((no, task.row.clone()));
            }
        }
        (rows, touched.messages)
    }

    /// Takes the name of a living task away.
    pub(crate) fn rename_none(&mut self, no: TaskNo) {
        self.set_bearer(no, false);
        self.edit(no, |row| row.name = None);
    }

    pub(crate) fn mark_evictable(&mut self, no: TaskNo) {
        self.evictable.push(no);
    }
}

impl Facts {
    fn of(row: &TaskRow) -> Self {
        let queue = match &row.state {
            State::Queued(queued) => match queued.why {
                QueuedWhy::Full(holder) => Some((holder, queued.ticket)),
                QueuedWhy::Backoff { .. } | QueuedWhy::NoPerformer { .. } => None,
            },
            _ => None,
        };
        Self {
            living: row.is_living(),
            slot: row.holds_slot(),
            queue,
            timers: [Self::first_timer(row), Self::limit_timer(row)],
            reserved: row.reserved(),
        }
    }

    fn first_timer(row: &TaskRow) -> Option<(Time, Timer)> {
        match &row.state {
            State::Queued(queued) => match queued.why {
                QueuedWhy::Backoff { until } => Some((until, Timer::Backoff)),
                _ => None,
            },
            State::Stopping(stopping) => Some((stopping.deadline, Timer::Stop)),
            State::Running | State::Waiting => {
                let call = row
                    .calls
                    .iter()
                    .filter_map(|call| Some((call.on.until()?, Timer::Call(call.index))))
                    .min();
                let stall = row
                    .limits
                    .as_ref()
                    .and_then(|limits| limits.stall)
                    .filter(|_| matches!(row.state, State::Running))
                    .filter(|_| !row.extra.as_ref().is_some_and(|extra| extra.stalled))
                    .map(|span| (row.moved.after(span), Timer::Stall));
                [call, stall].into_iter().flatten().min()
            }
            State::Closing { .. } | State::Ended(_) => None,
        }
    }

    fn limit_timer(row: &TaskRow) -> Option<(Time, Timer)> {
        match (&row.state, row.clock()) {
            (State::Running | State::Waiting, Clock::Ticking { until }) => {
                Some((until, Timer::Limit))
            }
            // Awaiting children is part of the run; stopping them has deadlines of its own.
            (State::Closing { .. }, Clock::Ticking { until }) if !sweeps_children(row) => {
                Some((until, Timer::Limit))
            }
            _ => None,
        }
    }
}

/// Whether a task in this state has sent its children to be stopped.
pub(crate) fn sweeps_children(row: &TaskRow) -> bool {
    use crate::outcome::Outcome;
    use crate::work::OnReturn;
    match &row.state {
        State::Stopping(_) => true,
        State::Closing { outcome } => match **outcome {
            Outcome::Succeeded { .. } => {
                row.spec.work.conduct().on_return == OnReturn::StopChildren
            }
            Outcome::Failed(_) | Outcome::Cancelled(_) => true,
        },
        _ => false,
    }
}

fn name_hash(owner: Owner, name: &Name) -> u64 {
    hash_in(owner, 0, name.folded().as_bytes())
}

fn key_hash(owner: Owner, run: RunNo, key: &Key) -> u64 {
    hash_in(owner, run.0, key.as_str().as_bytes())
}

fn hash_in(owner: Owner, run: u32, text: &[u8]) -> u64 {
    let owner = owner.task().map_or(0, TaskNo::get);
    xxhash_rust::xxh3::xxh3_64_with_seed(text, u64::from(owner) << 32 | u64::from(run))
}

/// Two trees are equal when what is stored of them is.
impl PartialEq for Tree {
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

impl Tree {
    /// Runs whose results wait at top level for this client.
    pub(crate) fn client_runs(&self, client: &ClientName) -> impl Iterator<Item = TaskNo> {
        self.children(Owner::Session).filter(move |no| {
            self.get(*no).is_some_and(|row| {
                row.client.as_ref() == Some(client)
                    && row.ended().is_none_or(|ended| ended.delivery == Delivery::Pending)
            })
        })
    }

    /// What of a task is seldom there, for reading.
    pub(crate) fn extra(&self, no: TaskNo) -> Option<&Extra> {
        self.get(no)?.extra.as_deref()
    }
}
