//! Links between owners and children.

use std::sync::Arc;

use crate::ids::{Owner, RunNo, TaskNo};
use crate::spec::{DeadlineScope, TaskSpec};
use crate::task::InheritedDeadline;
use crate::task_tree::TaskTree;

impl TaskTree {
    /// Changes the owner of a task and updates the counters that depend on owners. Its limit
    /// holders and their counters do not change.
    pub(crate) fn change_owner(&mut self, no: TaskNo, owner: Owner, drop_name: bool) {
        let Some(task) = self.tasks.get(no) else { return };
        let old = task.row.owner;
        let is_alive = task.row.is_alive();
        let width = task.row.width();
        let holder = task.row.limit_holder();
        let whole = task.links.alive_descendants + u32::from(is_alive);
        self.count_descendants(old, |count| count.saturating_sub(whole));
        if let Some(node) = self.links_mut(old) {
            node.alive_children = node.alive_children.saturating_sub(width);
        }
        if is_alive {
            self.set_name_indexed(no, false);
        }
        self.unlink(no);
        if let Some(task) = self.tasks.get_mut(no) {
            let row = Arc::make_mut(&mut task.row);
            row.owner = owner;
            if owner != old {
                // Its key belongs to the run that spawned it, which is not one of the new owner's.
                row.owner_run = RunNo::NONE;
            }
            if let Owner::Task(holder) = holder
                && owner != Owner::Task(holder)
            {
                row.extras_mut().limited_by = Some(holder);
            }
            if drop_name {
                row.name = None;
            }
        }
        self.link(no, owner);
        if is_alive {
            self.set_name_indexed(no, true);
        }
        self.count_descendants(owner, |count| count + whole);
        if let Some(node) = self.links_mut(owner) {
            node.alive_children += width;
        }
        self.mark_dirty(no);
    }

    /// Applies a deadline of a former holder to a task that passed to the session. If it does not
    /// end the task itself, it ends the agents and jobs that the task has started.
    pub(crate) fn inherit_deadline(&mut self, no: TaskNo, deadline: InheritedDeadline) {
        let mut pending = vec![no];
        while let Some(no) = pending.pop() {
            let Some(row) = self.get(no).filter(|row| row.is_alive()) else { continue };
            match row.spec.deadline_scope() {
                DeadlineScope::Task => self.edit(no, |row| {
                    let own = row.inherited_deadline();
                    if own.is_none_or(|own| deadline.at < own.at) {
                        row.extras_mut().inherited_deadline = Some(deadline);
                    }
                }),
                DeadlineScope::Descendants => {
                    pending.extend(self.children(Owner::Task(no)));
                    self.edit(no, |row| {
                        let own = row.descendants_deadline();
                        if own.is_none_or(|own| deadline.at < own.at) {
                            row.extras_mut().descendants_deadline = Some(deadline);
                        }
                    });
                }
                DeadlineScope::Nobody => {}
            }
        }
    }

    /// Returns the deadline of agents and jobs that `owner` starts under a kept process. An agent
    /// on the path is ended by the deadline itself, so the search stops there.
    pub(crate) fn descendants_deadline(&self, owner: Owner) -> Option<InheritedDeadline> {
        for no in self.owner_chain(owner).filter_map(Owner::task) {
            let row = self.get(no)?;
            if let Some(deadline) = row.descendants_deadline() {
                return Some(deadline);
            }
            if row.spec.deadline_scope() != DeadlineScope::Descendants {
                return None;
            }
        }
        None
    }

    /// Returns the deadline that a kept process passes on to a run of `spec` under `owner`.
    pub(crate) fn inherited_start_deadline(
        &self,
        owner: Owner,
        spec: &TaskSpec,
    ) -> Option<InheritedDeadline> {
        let is_bound = spec.deadline_scope() == DeadlineScope::Task;
        is_bound.then(|| self.descendants_deadline(owner)).flatten()
    }

    fn count_descendants(&mut self, owner: Owner, count: impl Fn(u32) -> u32) {
        let mut here = Some(owner);
        while let Some(holder) = here {
            if let Some(node) = self.links_mut(holder) {
                node.alive_descendants = count(node.alive_descendants);
            }
            here = holder.task().and_then(|no| self.owner_of(no));
        }
    }

    /// Links the orphans whose owner is loaded again.
    pub(super) fn link_orphans(&mut self) {
        for no in std::mem::take(&mut self.orphans) {
            if let Some(owner) = self.owner_of(no) {
                self.link(no, owner);
            }
        }
    }

    /// Unlinks the children of an owner that is being evicted.
    pub(super) fn orphan_children(&mut self, owner: TaskNo) {
        let children: Vec<TaskNo> = self.children(Owner::Task(owner)).collect();
        for no in children {
            if let Some(task) = self.tasks.get_mut(no) {
                task.previous = None;
                task.next = None;
            }
            self.orphans.insert(no);
        }
    }

    pub(super) fn link(&mut self, no: TaskNo, owner: Owner) {
        let Some(node) = self.links_mut(owner) else {
            self.orphans.insert(no);
            return;
        };
        let last = node.last_child.replace(no);
        node.first_child.get_or_insert(no);
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
        let owner = task.row.owner;
        let previous = task.previous.take();
        let next = task.next.take();
        if let Some(previous) = previous.and_then(|no| self.tasks.get_mut(no)) {
            previous.next = next;
        }
        if let Some(next) = next.and_then(|no| self.tasks.get_mut(no)) {
            next.previous = previous;
        }
        match self.links_mut(owner) {
            Some(node) => {
                if node.first_child == Some(no) {
                    node.first_child = next;
                }
                if node.last_child == Some(no) {
                    node.last_child = previous;
                }
            }
            None => {
                self.orphans.remove(&no);
            }
        }
    }
}
