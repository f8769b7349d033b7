//! Loads rows into memory, evicts them, and returns those to store.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashTable;

use crate::ids::{Owner, TaskNo};
use crate::message::Message;
use crate::task::{StoredTask, TaskRow};
use crate::task_table::TaskTable;
use crate::task_tree::derive::is_stopping_children;
use crate::task_tree::message_keys::MessageKeys;
use crate::task_tree::runtime_slots::RuntimeSlots;
use crate::task_tree::{
    ChangedRows, DirtyRows, KeyMark, LoadedTask, SessionRow, SessionState, TaskTree, TreeLinks,
};

impl TaskTree {
    /// Creates a tree from its stored row, without tasks.
    pub fn from_row(row: SessionRow) -> Self {
        Self {
            row,
            tasks: TaskTable::default(),
            session_links: TreeLinks::default(),
            names: HashTable::new(),
            keys: HashTable::new(),
            key_sweep_at: super::index::KEY_SWEEP_MIN,
            message_keys: MessageKeys::default(),
            loaded_messages: Vec::new(),
            timers: BTreeSet::new(),
            sweep: VecDeque::new(),
            awaiting_approval: BTreeSet::new(),
            evictable: Vec::new(),
            orphans: BTreeSet::new(),
            runtime_slots: RuntimeSlots::default(),
            host: None,
            dirty: DirtyRows::default(),
        }
    }

    /// Loads a stored task.
    ///
    /// These tasks of a session are loaded, each after its owners and limit holders:
    /// - alive and lingering tasks,
    /// - tasks with uncollected results for an alive owner or a client,
    /// - tasks that a parked wait names,
    /// - all owners and limit holders of these.
    pub fn insert_loaded(&mut self, task: StoredTask) {
        let StoredTask { no, row } = task;
        if self.tasks.get(no).is_some() {
            return;
        }
        let evictable = !row.is_alive();
        self.insert(no, row);
        self.link_orphans();
        if evictable {
            self.evictable.push(no);
        }
    }

    /// Loads an unread message. Messages are loaded in the order in which they were sent.
    pub fn insert_unread(&mut self, message: Arc<Message>) {
        let to = message.to;
        if let Some(node) = self.links_mut(to) {
            node.queues.get_or_insert_default().inbox.push_back(message);
        }
    }

    /// Completes loading and continues stops that were in progress.
    pub fn finish_loading(&mut self) {
        let stopping: Vec<TaskNo> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.row.is_alive() && is_stopping_children(&task.row))
            .map(|(no, _)| no)
            .collect();
        for no in stopping {
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
        let ended = self.tasks.iter().filter(|(_, task)| !task.row.is_alive());
        self.evictable = ended.map(|(no, _)| no).collect();
        // Children are evicted before their parents, so that few become orphans.
        self.evictable.reverse();
    }

    pub(crate) fn insert(&mut self, no: TaskNo, row: Arc<TaskRow>) {
        let owner = row.owner;
        if let Some(key) = &row.spec.key {
            self.insert_key(KeyMark::new(owner, row.owner_run, key, no));
        }
        let task = LoadedTask {
            row,
            links: TreeLinks::default(),
            previous: None,
            next: None,
            is_dirty: false,
        };
        self.tasks.insert(no, task);
        self.link(no, owner);
        self.derive(no, None);
    }

    /// Evicts every task that is not needed in memory and returns their numbers.
    pub fn evict(&mut self) -> Vec<TaskNo> {
        self.loaded_messages.clear();
        let mut evicted = Vec::new();
        for no in std::mem::take(&mut self.evictable) {
            if self.can_evict(no) {
                self.unlink(no);
                self.orphan_children(no);
                self.tasks.remove(no);
                evicted.push(no);
            } else if self.tasks.get(no).is_some_and(|task| task.is_dirty) {
                self.evictable.push(no);
            }
        }
        evicted
    }

    fn can_evict(&self, no: TaskNo) -> bool {
        let Some(task) = self.tasks.get(no) else { return false };
        let Some(ended) = task.row.ended() else { return false };
        let wanted = !task.row.is_collected()
            && match task.row.owner {
                // The operator reads results by their address and collects nothing.
                Owner::Session => task.row.client.is_some(),
                Owner::Task(owner) => self.is_alive(owner),
            };
        let waited = task.row.owner.task().is_some_and(|owner| {
            self.tasks.get(owner).is_some_and(|owner| !owner.links.wait_counts.is_empty())
        });
        // Slots and budgets are counted along limit holders, so a holder stays as long as the tasks
        // under its limits.
        let counting = task.links.alive_descendants > 0
            || task.links.limited_tasks > 0
            || task.links.running > 0;
        !ended.lingering && !wanted && !waited && !task.is_dirty && !counting
    }

    pub(crate) fn mark_evictable(&mut self, no: TaskNo) {
        self.evictable.push(no);
    }

    /// Takes the rows that the next commit has to write.
    pub fn take_dirty(&mut self) -> ChangedRows {
        let dirty = std::mem::take(&mut self.dirty);
        let mut tasks = Vec::with_capacity(dirty.tasks.len());
        for no in dirty.tasks {
            if let Some(task) = self.tasks.get_mut(no) {
                task.is_dirty = false;
                tasks.push(StoredTask::new(no, task.row.clone()));
            }
        }
        ChangedRows { tasks, messages: dirty.messages }
    }
}
