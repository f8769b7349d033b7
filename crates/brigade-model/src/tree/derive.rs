//! Everything about a task that follows from its row, kept in step with it.

use std::sync::Arc;

use crate::call::Condition;
use crate::ids::{CallIndex, Owner, Seq, TaskNo, Time};
use crate::limits::Usage;
use crate::outcome::Outcome;
use crate::task::{Clock, QueuedWhy, State, TaskRow};
use crate::tree::{Tree, Wait};
use crate::work::OnReturn;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A parked call's time is up.
    Call(CallIndex),
    /// A stop becomes firm, or gives up.
    Stop,
    /// The run's time limit, or a deadline that it inherited.
    Limit,
    /// No progress for too long.
    Stall,
    /// Try again after a crash.
    Backoff,
}

/// The derived side of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    living: bool,
    slot: bool,
    queue: Option<(Owner, Seq)>,
    timers: [Option<(Time, Timer)>; 2],
    reserved: Usage,
    asks: bool,
}

impl Facts {
    const NOTHING: Self = Self {
        living: false,
        slot: false,
        queue: None,
        timers: [None; 2],
        reserved: Usage::NONE,
        asks: false,
    };
}

impl Tree {
    /// The one way to change a row.
    pub(crate) fn edit(&mut self, no: TaskNo, change: impl FnOnce(&mut TaskRow)) {
        let Some(task) = self.tasks.get_mut(no) else { return };
        let before = Facts::of(&task.row);
        change(Arc::make_mut(&mut task.row));
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
    pub(super) fn derive(&mut self, no: TaskNo, before: Option<Facts>) {
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
        if before.asks != after.asks {
            let _ = if after.asks { self.asking.insert(no) } else { self.asking.remove(&no) };
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
        let mut here = Some(self.limit_holder(no));
        while let Some(holder) = here {
            if let Some(node) = self.node_mut(holder) {
                step(&mut node.limited);
            }
            if let Owner::Task(holder) = holder
                && !now_living
                && !self.lives(holder)
            {
                self.evictable.push(holder);
            }
            here = holder.task().map(|no| self.limit_holder(no));
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
        let mut here = Some(self.limit_holder(no));
        while let Some(holder) = here {
            if let Some(node) = self.node_mut(holder) {
                node.running =
                    if holds { node.running + 1 } else { node.running.saturating_sub(1) };
            }
            here = holder.task().map(|no| self.limit_holder(no));
        }
    }

    fn count_reserved(&mut self, from: Owner, before: Usage, after: Usage) {
        let mut here = Some(from);
        while let Some(holder) = here {
            if let Some(node) = self.node_mut(holder) {
                let crowd = node.crowd.get_or_insert_default();
                crowd.reserved = crowd.reserved.minus(before).plus(after);
            }
            here = holder.task().map(|no| self.limit_holder(no));
        }
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
            asks: row.calls.iter().any(|call| matches!(call.on, Condition::Approval { .. })),
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
                    .filter(|_| row.told.is_none())
                    .filter_map(|call| Some((call.on.until()?, Timer::Call(call.index))))
                    .min();
                [call, Self::stall_timer(row)].into_iter().flatten().min()
            }
            State::Closing { .. } | State::Ended(_) => None,
        }
    }

    /// Who waits is not silent: others have the word.
    fn stall_timer(row: &TaskRow) -> Option<(Time, Timer)> {
        let watch = row.watch().filter(|_| matches!(row.state, State::Running))?;
        let due = watch.due(row.moved, row.is_stalled(), row.nudged())?;
        Some((due, Timer::Stall))
    }

    fn limit_timer(row: &TaskRow) -> Option<(Time, Timer)> {
        let inherited = row.inherited_deadline().map(|deadline| deadline.at);
        let own = match row.clock() {
            Clock::Ticking { until } => Some(until),
            Clock::Unlimited | Clock::Stopped { .. } => None,
        };
        let until = match &row.state {
            State::Running | State::Waiting => own.into_iter().chain(inherited).min(),
            // Awaiting children is part of the run; stopping them has deadlines of its own.
            State::Closing { .. } if !sweeps_children(row) => {
                own.into_iter().chain(inherited).min()
            }
            // A queue stops its own clock, but not one that ran where it was spawned.
            State::Queued(_) => inherited,
            State::Closing { .. } | State::Stopping(_) | State::Ended(_) => None,
        };
        Some((until?, Timer::Limit))
    }
}

/// Whether a task in this state has sent its children to be stopped.
pub(crate) fn sweeps_children(row: &TaskRow) -> bool {
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
