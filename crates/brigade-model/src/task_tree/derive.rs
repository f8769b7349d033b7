//! State that follows from a task's row, updated with each change of the row.

use std::mem::discriminant;
use std::sync::Arc;

use crate::call::Condition;
use crate::ids::{CallIndex, Owner, Seq, TaskNo, Time};
use crate::limits::Usage;
use crate::outcome::Outcome;
use crate::task::{QueueReason, RunClock, TaskRow, TaskState};
use crate::task_tree::{TaskTree, WaitCount};
use crate::work::ParentClosePolicy;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TaskTimer {
    /// The timeout of a parked call.
    Call(CallIndex),
    /// The end of a stop's graceful or forced phase.
    Stop,
    /// The run's time limit, or an inherited deadline.
    Limit,
    /// The next reaction to a stall.
    Stall,
    /// The retry after a crash.
    Backoff,
    /// The end of the grace of an absent host.
    HostGrace,
}

/// The facts of a row from which other state is derived.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct RowFacts {
    is_alive: bool,
    holds_slot: bool,
    queue: Option<(Owner, Seq)>,
    runtime_ticket: Option<Seq>,
    timers: [Option<(Time, TaskTimer)>; 2],
    reserved: Usage,
    awaits_approval: bool,
}

impl RowFacts {
    const NOTHING: Self = Self {
        is_alive: false,
        holds_slot: false,
        queue: None,
        runtime_ticket: None,
        timers: [None; 2],
        reserved: Usage::NONE,
        awaits_approval: false,
    };
}

impl TaskTree {
    /// Changes a row. There is no other way to do it.
    pub(crate) fn edit(&mut self, no: TaskNo, change: impl FnOnce(&mut TaskRow)) {
        let Some(task) = self.tasks.get_mut(no) else { return };
        let before = RowFacts::of(&task.row);
        let kind_before = discriminant(&task.row.state);
        let row = Arc::make_mut(&mut task.row);
        change(row);
        if discriminant(&row.state) != kind_before {
            row.state_changed_at = Some(self.row.now);
        }
        if !task.is_dirty {
            task.is_dirty = true;
            self.dirty.tasks.push(no);
        }
        self.derive(no, Some(before));
    }

    pub(crate) fn mark_dirty(&mut self, no: TaskNo) {
        self.edit(no, |_| {});
    }

    /// Applies the difference between `before` and the current row to all derived state.
    pub(super) fn derive(&mut self, no: TaskNo, before: Option<RowFacts>) {
        let Some(task) = self.tasks.get(no) else { return };
        let before = before.unwrap_or(RowFacts::NOTHING);
        let after = RowFacts::of(&task.row);
        if before == after {
            return;
        }
        let owner = task.row.owner;
        if before.is_alive != after.is_alive {
            self.count_alive(no, owner, after.is_alive);
        }
        if before.holds_slot != after.holds_slot {
            self.count_slot(no, after.holds_slot);
            if after.holds_slot {
                self.count_start();
            }
        }
        if before.runtime_ticket != after.runtime_ticket {
            self.requeue_for_runtime(no, before.runtime_ticket, after.runtime_ticket);
        }
        if before.queue != after.queue {
            if let Some((holder, ticket)) = before.queue
                && let Some(queues) = self.links_mut(holder).and_then(|node| node.queues.as_mut())
            {
                queues.queue.remove(&(ticket, no));
            }
            if let Some((holder, ticket)) = after.queue
                && let Some(node) = self.links_mut(holder)
            {
                node.queues.get_or_insert_default().queue.insert((ticket, no));
            }
        }
        if before.reserved != after.reserved {
            self.count_reserved(Owner::Task(no), before.reserved, after.reserved);
        }
        if before.awaits_approval != after.awaits_approval {
            let _ = if after.awaits_approval {
                self.awaiting_approval.insert(no)
            } else {
                self.awaiting_approval.remove(&no)
            };
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

    fn count_alive(&mut self, no: TaskNo, owner: Owner, is_alive: bool) {
        let step = |count: &mut u32| {
            *count = if is_alive { *count + 1 } else { count.saturating_sub(1) };
        };
        let is_part = self.get(no).is_some_and(|row| row.spec.part_of_parent);
        if let Some(node) = self.links_mut(owner).filter(|_| !is_part) {
            step(&mut node.alive_children);
        }
        let mut here = Some(owner);
        while let Some(holder) = here {
            if let Some(node) = self.links_mut(holder) {
                step(&mut node.alive_descendants);
            }
            here = holder.task().and_then(|no| self.owner_of(no));
        }
        let mut here = Some(self.limit_holder(no));
        while let Some(holder) = here {
            if let Some(node) = self.links_mut(holder) {
                step(&mut node.limited_tasks);
            }
            if let Owner::Task(holder) = holder
                && !is_alive
                && !self.is_alive(holder)
            {
                self.evictable.push(holder);
            }
            here = holder.task().map(|no| self.limit_holder(no));
        }
        self.set_name_indexed(no, is_alive);
        if !is_alive {
            self.mark_children_evictable(no);
            self.evictable.push(no);
        }
    }

    /// Results of an ended owner can be evicted too.
    fn mark_children_evictable(&mut self, no: TaskNo) {
        let mut children: Vec<TaskNo> = self.children(Owner::Task(no)).collect();
        self.evictable.append(&mut children);
    }

    fn count_slot(&mut self, no: TaskNo, holds: bool) {
        let mut here = Some(self.limit_holder(no));
        while let Some(holder) = here {
            if let Some(node) = self.links_mut(holder) {
                node.running =
                    if holds { node.running + 1 } else { node.running.saturating_sub(1) };
            }
            here = holder.task().map(|no| self.limit_holder(no));
        }
    }

    fn count_reserved(&mut self, from: Owner, before: Usage, after: Usage) {
        let mut here = Some(from);
        while let Some(holder) = here {
            if let Some(node) = self.links_mut(holder) {
                let queues = node.queues.get_or_insert_default();
                queues.reserved = queues.reserved.minus(before).plus(after);
            }
            here = holder.task().map(|no| self.limit_holder(no));
        }
    }

    /// Counts the alive tasks of each parked wait again.
    pub(crate) fn recount_waits(&mut self, no: TaskNo) {
        let Some(task) = self.tasks.get(no) else { return };
        if task.row.parked_calls.is_empty() && task.links.wait_counts.is_empty() {
            return;
        }
        let counted = task.row.parked_calls.iter().filter_map(|call| match &call.condition {
            Condition::Tasks(wait) => {
                let alive = wait.tasks.iter().filter(|no| self.is_alive(**no)).count();
                Some(WaitCount {
                    index: call.index,
                    remaining: u32::try_from(alive).unwrap_or(u32::MAX),
                })
            }
            _ => None,
        });
        let waits = counted.collect();
        if let Some(task) = self.tasks.get_mut(no) {
            task.links.wait_counts = waits;
        }
    }

    /// Counts an ended child in the parked waits of its owner.
    pub(crate) fn count_down_waits(&mut self, owner: TaskNo, child: TaskNo) {
        let Some(task) = self.tasks.get_mut(owner) else { return };
        for wait in &mut task.links.wait_counts {
            let call = task.row.parked_calls.iter().find(|call| call.index == wait.index);
            if let Some(Condition::Tasks(on)) = call.map(|call| &call.condition)
                && on.tasks.binary_search(&child).is_ok()
            {
                wait.remaining = wait.remaining.saturating_sub(1);
            }
        }
    }
}

impl RowFacts {
    fn of(row: &TaskRow) -> Self {
        let queue = match &row.state {
            TaskState::Queued(queued) => match queued.reason {
                QueueReason::RunningLimit(holder) => Some((holder, queued.ticket)),
                QueueReason::RuntimeLimit
                | QueueReason::Backoff { .. }
                | QueueReason::NoPerformer { .. } => None,
            },
            _ => None,
        };
        let runtime_ticket = match &row.state {
            TaskState::Queued(queued) if queued.reason == QueueReason::RuntimeLimit => {
                Some(queued.ticket)
            }
            _ => None,
        };
        Self {
            is_alive: row.is_alive(),
            holds_slot: row.holds_slot(),
            queue,
            runtime_ticket,
            timers: [Self::first_timer(row), Self::limit_timer(row)],
            reserved: row.reserved(),
            awaits_approval: row
                .parked_calls
                .iter()
                .any(|call| matches!(call.condition, Condition::Approval { .. })),
        }
    }

    fn first_timer(row: &TaskRow) -> Option<(Time, TaskTimer)> {
        match &row.state {
            TaskState::Queued(queued) => match queued.reason {
                QueueReason::Backoff { until } => Some((until, TaskTimer::Backoff)),
                _ => None,
            },
            TaskState::Stopping(stopping) => Some((stopping.deadline, TaskTimer::Stop)),
            TaskState::Away(away) => Some((away.until, TaskTimer::HostGrace)),
            TaskState::Running | TaskState::Waiting => {
                let call = row
                    .parked_calls
                    .iter()
                    .filter(|_| row.unacked.is_none())
                    .filter_map(|call| Some((call.condition.until()?, TaskTimer::Call(call.index))))
                    .min();
                [call, Self::stall_timer(row)].into_iter().flatten().min()
            }
            TaskState::Closing { .. } | TaskState::Ended(_) => None,
        }
    }

    /// Returns the stall timer. A waiting task is not silent, because others have to act, and nobody hears
    /// a process on another host.
    fn stall_timer(row: &TaskRow) -> Option<(Time, TaskTimer)> {
        let watch = row
            .stall_watch()
            .filter(|_| matches!(row.state, TaskState::Running) && !row.is_unattended())?;
        let due = watch.next_due(row.last_activity_at, row.is_stalled(), row.nudges())?;
        Some((due, TaskTimer::Stall))
    }

    fn limit_timer(row: &TaskRow) -> Option<(Time, TaskTimer)> {
        let inherited = row.inherited_deadline().map(|deadline| deadline.at);
        let own = match row.clock() {
            RunClock::Ticking { until } => Some(until),
            RunClock::Unlimited | RunClock::Stopped { .. } => None,
        };
        let until = match &row.state {
            TaskState::Running | TaskState::Waiting => own.into_iter().chain(inherited).min(),
            // Awaiting children is part of the run; stopping them has deadlines of its own.
            TaskState::Closing { .. } if !is_stopping_children(row) => {
                own.into_iter().chain(inherited).min()
            }
            // A queue stops the task's own clock, but not an inherited one.
            TaskState::Queued(_) => inherited,
            // The shim of an absent host ends the process in time. The host has the truth about it.
            TaskState::Away(_)
            | TaskState::Closing { .. }
            | TaskState::Stopping(_)
            | TaskState::Ended(_) => None,
        };
        Some((until?, TaskTimer::Limit))
    }
}

/// Returns whether a task in this state stops its children.
pub(crate) fn is_stopping_children(row: &TaskRow) -> bool {
    match &row.state {
        TaskState::Stopping(_) => true,
        TaskState::Closing { outcome } => match **outcome {
            Outcome::Succeeded { .. } => {
                row.spec.work.policy().parent_close == ParentClosePolicy::StopChildren
            }
            Outcome::Failed(_) | Outcome::Cancelled(_) => true,
        },
        _ => false,
    }
}
