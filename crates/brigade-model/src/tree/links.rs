//! Who is below whom.

use std::sync::Arc;

use crate::ids::{Owner, RunNo, TaskNo};
use crate::tree::Tree;

impl Tree {
    /// Hands a task to another owner, with the counting that hangs on owners. The limits that hold for
    /// it stay, and so does what is counted along them.
    pub(crate) fn rehome(&mut self, no: TaskNo, owner: Owner, drop_name: bool) {
        let Some(task) = self.tasks.get(no) else { return };
        let (old, living) = (task.row.owner, task.row.is_living());
        let holder = task.row.limit_holder();
        let whole = task.node.below + u32::from(living);
        self.count_below(old, |below| below.saturating_sub(whole));
        if let Some(node) = self.node_mut(old) {
            node.children = node.children.saturating_sub(u32::from(living));
        }
        if living {
            self.set_bearer(no, false);
        }
        self.unlink(no);
        if let Some(task) = self.tasks.get_mut(no) {
            let row = Arc::make_mut(&mut task.row);
            row.owner = owner;
            if owner != old {
                // Its key belongs to the run that spawned it, which is none of the new owner's.
                row.owner_run = RunNo::NONE;
            }
            if let Owner::Task(holder) = holder
                && owner != Owner::Task(holder)
            {
                row.extra_mut().limited_by = Some(holder);
            }
            if drop_name {
                row.name = None;
            }
        }
        self.link(no, owner);
        if living {
            self.set_bearer(no, true);
        }
        self.count_below(owner, |below| below + whole);
        if let Some(node) = self.node_mut(owner) {
            node.children += u32::from(living);
        }
        self.touch(no);
    }

    fn count_below(&mut self, owner: Owner, count: impl Fn(u32) -> u32) {
        let mut here = Some(owner);
        while let Some(holder) = here {
            if let Some(node) = self.node_mut(holder) {
                node.below = count(node.below);
            }
            here = holder.task().and_then(|no| self.owner_of(no));
        }
    }

    /// Links what has waited in memory for its owner to come back.
    pub(super) fn link_orphans(&mut self) {
        for no in std::mem::take(&mut self.orphans) {
            if let Some(owner) = self.owner_of(no) {
                self.link(no, owner);
            }
        }
    }

    /// What is below an owner that leaves memory is linked to nobody.
    pub(super) fn orphan_children(&mut self, owner: TaskNo) {
        let children: Vec<TaskNo> = self.children(Owner::Task(owner)).collect();
        for no in children {
            if let Some(task) = self.tasks.get_mut(no) {
                (task.previous, task.next) = (None, None);
            }
            self.orphans.insert(no);
        }
    }

    pub(super) fn link(&mut self, no: TaskNo, owner: Owner) {
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

    pub(super) fn unlink(&mut self, no: TaskNo) {
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
}
