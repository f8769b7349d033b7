//! What comes into memory, what leaves it, and what is to be stored.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashTable;

use crate::ids::{Owner, TaskNo};
use crate::message::Message;
use crate::task::TaskRow;
use crate::task_table::TaskTable;
use crate::task_tree::derive::is_stopping_children;
use crate::task_tree::{
    DirtyRows, KeyMark, LoadedTask, MessageRow, SessionRow, SessionState, TaskTree, TreeLinks,
};

impl TaskTree {
    /// A tree in memory from its stored row, without tasks.
    pub fn from_row(row: SessionRow) -> Self {
        Self {
            row,
            tasks: TaskTable::default(),
            session_links: TreeLinks::default(),
            names: HashTable::new(),
            keys: HashTable::new(),
            key_sweep_at: super::index::KEY_SWEEP_MIN,
            timers: BTreeSet::new(),
            sweep: VecDeque::new(),
            awaiting_approval: BTreeSet::new(),
            evictable: Vec::new(),
            orphans: BTreeSet::new(),
            dirty: DirtyRows::default(),
        }
    }

    /// Brings a stored task into memory.
    ///
    /// A tree is loaded with every task that lives or lingers, every uncollected result of a living
    /// owner or a client, every task that a parked wait names, and all that is above one of these or
    /// limits it. Parents and holders of limits come before those below them.
    pub fn insert_loaded(&mut self, no: TaskNo, row: TaskRow) {
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

    /// Brings an unread message into memory, in the order in which they were sent.
    pub fn insert_unread(&mut self, message: Arc<Message>) {
        let to = message.to;
        if let Some(node) = self.links_mut(to) {
            node.queues.get_or_insert_default().inbox.push_back(message);
        }
    }

    /// Completes loading: stops that were under way go on.
    pub fn finish_loading(&mut self) {
        let ending: Vec<TaskNo> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.row.is_alive() && is_stopping_children(&task.row))
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
        let ended = self.tasks.iter().filter(|(_, task)| !task.row.is_alive());
        self.evictable = ended.map(|(no, _)| no).collect();
        // Children leave before their parents, so that few are ever left without one.
        self.evictable.reverse();
    }

    pub(crate) fn insert(&mut self, no: TaskNo, row: TaskRow) {
        let owner = row.owner;
        if let Some(key) = &row.spec.key {
            self.insert_key(KeyMark::new(owner, row.owner_run, key, no));
        }
        let row = Arc::new(row);
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

    /// Lets go of every task that nobody needs in memory. Returns their numbers.
    pub fn evict(&mut self) -> Vec<TaskNo> {
        let mut gone = Vec::new();
        for no in std::mem::take(&mut self.evictable) {
            if self.can_evict(no) {
                self.unlink(no);
                self.orphan_children(no);
                self.tasks.remove(no);
                gone.push(no);
            } else if self.tasks.get(no).is_some_and(|task| task.is_dirty) {
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
                Owner::Task(owner) => self.is_alive(owner),
            };
        let waited = task.row.owner.task().is_some_and(|owner| {
            self.tasks.get(owner).is_some_and(|owner| !owner.links.wait_counts.is_empty())
        });
        // Slots and budgets are counted along those whose limits hold, so these stay for what they limit.
        let counting = task.links.alive_descendants > 0
            || task.links.limited_tasks > 0
            || task.links.running > 0;
        !ended.lingering && !wanted && !waited && !task.is_dirty && !counting
    }

    pub(crate) fn mark_evictable(&mut self, no: TaskNo) {
        self.evictable.push(no);
    }

    /// Takes what the next commit has to write.
    pub fn take_dirty(&mut self) -> (Vec<(TaskNo, Arc<TaskRow>)>, Vec<MessageRow>) {
        let touched = std::mem::take(&mut self.dirty);
        let mut rows = Vec::with_capacity(touched.tasks.len());
        for no in touched.tasks {
            if let Some(task) = self.tasks.get_mut(no) {
                task.is_dirty = false;
                rows.push((no, task.row.clone()));
            }
        }
        (rows, touched.messages)
    }
}
