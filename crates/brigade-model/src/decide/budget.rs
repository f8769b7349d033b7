//! Budgets: set aside before, charged after, with everybody whose limits hold.

use super::stop::fail_task;
use super::{CommandReply, Decision, Draft};
use crate::command::WorkResult;
use crate::event::Event;
use crate::ids::{Owner, TaskNo, Time};
use crate::limits::{LimitKind, Money, Remaining, RemainingBudgets, Usage};
use crate::outcome::Failure;
use crate::task::{InheritedDeadline, RunClock, TaskRow};
use crate::task_tree::TaskTree;

pub(super) fn reserve(
    tree: &TaskTree,
    no: TaskNo,
    (most, least): (Usage, Usage),
    now: Time,
) -> Decision {
    let mut granted = most;
    if is_unmetered(tree, no) {
        return Decision::reply(CommandReply::Granted(granted));
    }
    for holder in tree.limit_holders(Owner::Task(no)) {
        let Some(left) = remaining_usage(tree, holder) else { continue };
        if let Some(limit) = left.first_shortfall(&least) {
            return end_exhausted_holder(tree, (no, holder), limit, now);
        }
        granted = granted.at_most(left);
    }
    Decision::event(
        Event::Reserved { no, amount: Box::new(granted) },
        CommandReply::Granted(granted),
    )
}

/// The same for work that wants to know how much there is before it bites.
pub(super) fn reserve_with_remaining(
    tree: &TaskTree,
    no: TaskNo,
    (most, least): (Usage, Usage),
    now: Time,
) -> Decision {
    let mut decision = reserve(tree, no, (most, least), now);
    if let CommandReply::Granted(amount) = decision.reply {
        decision.reply =
            CommandReply::Reserved { amount, remaining: remaining_budgets(tree, no, now) };
    }
    decision
}

/// What is left for a task of all that holds for it, before it takes anything more.
fn remaining_budgets(tree: &TaskTree, no: TaskNo, now: Time) -> RemainingBudgets {
    let mut least = RemainingBudgets::default();
    for holder in tree.limit_holders(Owner::Task(no)) {
        let Some(limits) = tree.limits(holder) else { continue };
        let shared = holder != Owner::Task(no);
        if limits.tokens.is_some() || limits.money.is_some() {
            let used = tree.committed_usage(holder);
            if let Some(most) = limits.tokens {
                Remaining::keep_smaller(
                    &mut least.tokens,
                    Remaining::new(most, used.tokens, shared),
                );
            }
            if let Some(most) = limits.money {
                Remaining::keep_smaller(
                    &mut least.money,
                    Remaining::new(most.0, used.money.0, shared),
                );
            }
        }
    }
    for holder in tree.owner_chain(Owner::Task(no)).filter_map(Owner::task) {
        for deadline in deadlines(tree, holder, now) {
            let left = deadline.at.since(now).0;
            let shared = holder != no || deadline.holder != no;
            Remaining::keep_smaller(
                &mut least.time,
                Remaining { amount: left, limit: deadline.limit.0, shared },
            );
        }
    }
    least
}

/// The deadlines that end a task: of its own time limit, and the one that it has inherited.
pub(super) fn deadlines(
    tree: &TaskTree,
    no: TaskNo,
    now: Time,
) -> impl Iterator<Item = InheritedDeadline> {
    let row = tree.get(no);
    let at = row.and_then(|row| match row.clock() {
        RunClock::Unlimited => None,
        RunClock::Ticking { until } => Some(until),
        RunClock::Stopped { remaining: left } => Some(now.after(left)),
    });
    let own = tree.limits(Owner::Task(no)).and_then(|limits| limits.time);
    let is_top = tree.owner_of(no) == Some(Owner::Session);
    let of_session = tree.row().limits.time.filter(|_| is_top);
    let limit = own.into_iter().chain(of_session).min();
    let limit = limit.unwrap_or_default();
    let own = at.map(|at| InheritedDeadline { at, limit, holder: no });
    own.into_iter().chain(row.and_then(TaskRow::inherited_deadline))
}

/// Whether no budget holds here: then there is nothing to set anything aside from.
pub(crate) fn is_unmetered(tree: &TaskTree, no: TaskNo) -> bool {
    let mut limits = tree.limit_holders(Owner::Task(no)).filter_map(|holder| tree.limits(holder));
    limits.all(|limits| limits.tokens.is_none() && limits.money.is_none())
}

/// Charges what was set aside by work that will say no more of it. What was under way may have been
/// paid for: a budget errs on the safe side, and the account says that it does.
pub(super) fn charge_reservation(no: TaskNo, row: &TaskRow) -> Option<Draft> {
    let reserved = row.reserved();
    let spent = Box::new(reserved);
    (!reserved.is_none()).then(|| Event::Charged { no, spent, at_most: true }.into())
}

/// Charges what was set aside by work that has ended, if that has not been done.
pub(super) fn release_reservation(
    tree: &TaskTree,
    (no, row): (TaskNo, &TaskRow),
    how: &WorkResult,
) -> Option<Draft> {
    match how {
        WorkResult::Stopped { spent: Some(spent), .. } if !row.reserved().is_none() => {
            let spent = Box::new(spent.at_most(row.reserved()));
            Some(Event::Charged { no, spent, at_most: false }.into())
        }
        WorkResult::Stopped { spent: Some(spent), .. } if is_unmetered(tree, no) => {
            Some(Event::Charged { no, spent: Box::new(*spent), at_most: false }.into())
        }
        // Who fails in the middle of something has not said what it cost.
        WorkResult::Aborted | WorkResult::Stopped { .. } | WorkResult::Failed { .. } => {
            charge_reservation(no, row)
        }
        WorkResult::Returned(_) => None,
    }
}

/// What a holder's budget still allows.
fn remaining_usage(tree: &TaskTree, holder: Owner) -> Option<Usage> {
    let limits = tree.limits(holder)?;
    let used = tree.committed_usage(holder);
    Some(Usage {
        tokens: limits.tokens.map_or(u64::MAX, |most| most.saturating_sub(used.tokens)),
        money: limits
            .money
            .map_or(Money(u64::MAX), |most| Money(most.0.saturating_sub(used.money.0))),
    })
}

/// The holder ends. Where that is not above the task by ownership (it is the session, or the task was
/// kept by it), the top-level run that asks does: others find out when they ask.
fn end_exhausted_holder(
    tree: &TaskTree,
    (no, holder): (TaskNo, Owner),
    limit: LimitKind,
    now: Time,
) -> Decision {
    let owners: Vec<TaskNo> = tree.owner_chain(Owner::Task(no)).filter_map(Owner::task).collect();
    let ends = holder.task().filter(|holder| owners.contains(holder)).or(owners.last().copied());
    let event = ends.and_then(|no| fail_task(tree, no, Failure::Budget { limit }, now));
    Decision {
        drafts: event.into_iter().map(Draft::from).collect(),
        reply: CommandReply::Exhausted(limit),
    }
}
