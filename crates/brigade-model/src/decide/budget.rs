//! Reserves budget before a call and charges it afterwards, for every holder whose limits apply.

use super::stop::fail_task;
use super::{CommandReply, Decision, Draft};
use crate::command::WorkResult;
use crate::event::Event;
use crate::ids::{Owner, TaskNo, Time};
use crate::limits::{CostEstimate, LimitKind, Money, Remaining, RemainingBudgets, Usage};
use crate::outcome::Failure;
use crate::task::{InheritedDeadline, RunClock, TaskRow};
use crate::task_tree::{TaskTree, TaskView};

pub(super) fn reserve(tree: &TaskTree, no: TaskNo, estimate: CostEstimate, now: Time) -> Decision {
    let mut granted = estimate.max;
    if is_unmetered(tree, no) {
        return Decision::reply(CommandReply::Granted(granted));
    }
    for holder in tree.limit_holders(Owner::Task(no)) {
        let Some(remaining) = remaining_usage(tree, holder) else { continue };
        if let Some(limit) = remaining.first_shortfall(&estimate.min) {
            return end_exhausted_holder(tree, no, holder, limit, now);
        }
        granted = granted.at_most(remaining);
    }
    Decision::event(
        Event::Reserved { no, amount: Box::new(granted) },
        CommandReply::Granted(granted),
    )
}

/// Reserves budget for a step, and also returns the remaining budgets.
pub(super) fn reserve_with_remaining(
    tree: &TaskTree,
    no: TaskNo,
    estimate: CostEstimate,
    now: Time,
) -> Decision {
    let mut decision = reserve(tree, no, estimate, now);
    if let CommandReply::Granted(amount) = decision.reply {
        decision.reply =
            CommandReply::Reserved { amount, remaining: remaining_budgets(tree, no, now) };
    }
    decision
}

/// Returns the remaining budgets of a task, before the current reservation.
fn remaining_budgets(tree: &TaskTree, no: TaskNo, now: Time) -> RemainingBudgets {
    let mut smallest = RemainingBudgets::default();
    for holder in tree.limit_holders(Owner::Task(no)) {
        let Some(limits) = tree.limits(holder) else { continue };
        let shared = holder != Owner::Task(no);
        if limits.tokens.is_some() || limits.money.is_some() {
            let used = tree.committed_usage(holder);
            if let Some(limit) = limits.tokens {
                Remaining::keep_smaller(
                    &mut smallest.tokens,
                    Remaining::new(limit, used.tokens, shared),
                );
            }
            if let Some(limit) = limits.money {
                Remaining::keep_smaller(
                    &mut smallest.money,
                    Remaining::new(limit.0, used.money.0, shared),
                );
            }
        }
    }
    for holder in tree.owner_chain(Owner::Task(no)).filter_map(Owner::task) {
        for deadline in deadlines(tree, holder, now) {
            let remaining = deadline.at.since(now).0;
            let shared = holder != no || deadline.holder != no;
            Remaining::keep_smaller(
                &mut smallest.time,
                Remaining { amount: remaining, limit: deadline.limit.0, shared },
            );
        }
    }
    smallest
}

/// Returns the deadlines that end a task: that of its own time limit, and the inherited one.
pub(super) fn deadlines(
    tree: &TaskTree,
    no: TaskNo,
    now: Time,
) -> impl Iterator<Item = InheritedDeadline> {
    let row = tree.get(no);
    let at = row.and_then(|row| match row.clock() {
        RunClock::Unlimited => None,
        RunClock::Ticking { until } => Some(until),
        RunClock::Stopped { remaining } => Some(now.after(remaining)),
    });
    let own = tree.limits(Owner::Task(no)).and_then(|limits| limits.time);
    let is_top = tree.owner_of(no) == Some(Owner::Session);
    let of_session = tree.row().limits.time.filter(|_| is_top);
    let limit = own.into_iter().chain(of_session).min();
    let limit = limit.unwrap_or_default();
    let own = at.map(|at| InheritedDeadline { at, limit, holder: no });
    own.into_iter().chain(row.and_then(TaskRow::inherited_deadline))
}

/// Returns whether no budget applies to a task, so that nothing has to be reserved.
pub(crate) fn is_unmetered(tree: &TaskTree, no: TaskNo) -> bool {
    let mut limits = tree.limit_holders(Owner::Task(no)).filter_map(|holder| tree.limits(holder));
    limits.all(|limits| limits.tokens.is_none() && limits.money.is_none())
}

/// Charges the reservation of work that will not report its cost. The call may have been paid for,
/// so the full amount is charged and marked as an upper bound.
pub(super) fn charge_reservation(no: TaskNo, row: &TaskRow) -> Option<Draft> {
    let reserved = row.reserved();
    let spent = Box::new(reserved);
    (!reserved.is_none()).then(|| Event::Charged { no, spent, at_most: true }.into())
}

/// Charges the reservation of work that has ended, unless that was done before.
pub(super) fn release_reservation(
    tree: &TaskTree,
    task: TaskView<'_>,
    result: &WorkResult,
) -> Option<Draft> {
    let TaskView { no, row } = task;
    match result {
        WorkResult::Stopped { spent: Some(spent), .. } if !row.reserved().is_none() => {
            let spent = Box::new(spent.at_most(row.reserved()));
            Some(Event::Charged { no, spent, at_most: false }.into())
        }
        WorkResult::Stopped { spent: Some(spent), .. } if is_unmetered(tree, no) => {
            Some(Event::Charged { no, spent: Box::new(*spent), at_most: false }.into())
        }
        // Work that fails during a call has not reported its cost.
        WorkResult::Aborted | WorkResult::Stopped { .. } | WorkResult::Failed { .. } => {
            charge_reservation(no, row)
        }
        WorkResult::Returned(_) => None,
    }
}

/// Returns the amount that a holder's budget still allows.
fn remaining_usage(tree: &TaskTree, holder: Owner) -> Option<Usage> {
    let limits = tree.limits(holder)?;
    let used = tree.committed_usage(holder);
    Some(Usage {
        tokens: limits.tokens.map_or(u64::MAX, |limit| limit.saturating_sub(used.tokens)),
        money: limits
            .money
            .map_or(Money(u64::MAX), |limit| Money(limit.0.saturating_sub(used.money.0))),
    })
}

/// Ends the holder of an exhausted budget. If the holder is the session, or a task that kept this
/// one, the top-level run of the task ends instead. Other runs are ended at their next reservation.
fn end_exhausted_holder(
    tree: &TaskTree,
    no: TaskNo,
    holder: Owner,
    limit: LimitKind,
    now: Time,
) -> Decision {
    let owners: Vec<TaskNo> = tree.owner_chain(Owner::Task(no)).filter_map(Owner::task).collect();
    let ended = holder.task().filter(|holder| owners.contains(holder)).or(owners.last().copied());
    let event = ended.and_then(|no| fail_task(tree, no, Failure::Budget { limit }, now));
    Decision {
        drafts: event.into_iter().map(Draft::from).collect(),
        reply: CommandReply::Exhausted(limit),
    }
}
