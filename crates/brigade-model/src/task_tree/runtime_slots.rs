//! What the runtime says about starts: the session's share of its running limit, and its host.
//!
//! The runtime says before each command how many tasks may start. That number is neither stored nor
//! part of an event: an event says that a task started or queued, and `apply` never asks why.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ids::{Owner, Seq, TaskNo};
use crate::task::QueueReason;
use crate::task_tree::TaskTree;
use crate::work::Work;

#[derive(Clone, Debug, Default)]
pub(super) struct RuntimeSlots {
    /// The number of tasks that may start now. `None` is no limit.
    allowed_starts: Option<u32>,
    queue: BTreeSet<(Seq, TaskNo)>,
}

impl TaskTree {
    /// Sets the host of the processes that start from now on.
    pub fn set_host(&mut self, host: Option<Arc<str>>) {
        self.host = host;
    }

    /// Returns the host of work that starts now, if it is a process.
    pub(crate) fn host_for(&self, work: &Work) -> Option<Arc<str>> {
        match work {
            Work::Process(_) => self.host.clone(),
            _ => None,
        }
    }

    /// Sets the number of tasks that the runtime lets start from now on. Each start takes one.
    /// `None` is no limit.
    ///
    /// A task that has no start left queues with [`QueueReason::RuntimeLimit`]. Any later command
    /// starts such tasks, first come, first served, as soon as the number allows it.
    pub fn allow_starts(&mut self, count: Option<u32>) {
        self.runtime_slots.allowed_starts = count;
    }

    /// Returns the number of tasks that hold a slot.
    pub fn running_count(&self) -> u32 {
        self.session_links.running
    }

    /// Returns the number of tasks that queue for the runtime.
    pub fn runtime_queue_len(&self) -> usize {
        self.runtime_slots.queue.len()
    }

    /// Returns the reason why a task under `from` cannot start now, if there is one.
    pub(crate) fn queue_reason(&self, from: Owner) -> Option<QueueReason> {
        if let Some(holder) = self.full_limit_holder(from) {
            return Some(QueueReason::RunningLimit(holder));
        }
        // Nobody overtakes a task that queues already.
        let must_queue = !self.may_start() || !self.runtime_slots.queue.is_empty();
        must_queue.then_some(QueueReason::RuntimeLimit)
    }

    /// Returns the first task that queues for the runtime, if the runtime lets it start.
    pub(crate) fn runtime_queue_head(&self) -> Option<TaskNo> {
        let head = self.runtime_slots.queue.first().filter(|_| self.may_start())?;
        Some(head.1)
    }

    /// Returns the nearest holder from `from` upwards at whose running limit nothing more starts,
    /// not even a task that has its place.
    pub(crate) fn exceeded_limit_holder(&self, from: Owner) -> Option<Owner> {
        self.limit_holders(from).find(|&holder| {
            let limit = self.limits(holder).and_then(|limits| limits.running);
            let running = self.links(holder).map_or(0, |node| node.running);
            limit.is_some_and(|limit| running >= limit)
        })
    }

    pub(super) fn count_start(&mut self) {
        if let Some(count) = &mut self.runtime_slots.allowed_starts {
            *count = count.saturating_sub(1);
        }
    }

    pub(super) fn requeue_for_runtime(
        &mut self,
        no: TaskNo,
        before: Option<Seq>,
        after: Option<Seq>,
    ) {
        if let Some(ticket) = before {
            self.runtime_slots.queue.remove(&(ticket, no));
        }
        if let Some(ticket) = after {
            self.runtime_slots.queue.insert((ticket, no));
        }
        if before.is_some() == after.is_some() {
            return;
        }
        let mut here = Some(self.limit_holder(no));
        while let Some(holder) = here {
            if let Some(node) = self.links_mut(holder) {
                let count = node.runtime_queued;
                node.runtime_queued =
                    if after.is_some() { count + 1 } else { count.saturating_sub(1) };
            }
            here = holder.task().map(|no| self.limit_holder(no));
        }
    }

    fn may_start(&self) -> bool {
        self.runtime_slots.allowed_starts != Some(0)
    }
}
