//! Budgets: set aside before, charged after, with everybody whose limits hold.

use super::stop::fail;
use super::{Decision, Draft, Reply};
use crate::command::EndedHow;
use crate::event::Event;
use crate::ids::{Owner, TaskNo, Time};
use crate::limits::{Left, LimitKind, Money, Rest, Usage};
use crate::outcome::Failure;
use crate::task::{Clock, InheritedDeadline, TaskRow};
use crate::tree::Tree;

pub(super) fn reserve(
    tree: &Tree,
    no: TaskNo,
    (most, least): (Usage, Usage),
    now: Time,
) -> Decision {
    let mut granted = most;
    if is_unmetered(tree, no) {
        return Decision::reply(Reply::Granted(granted));
    }
    for holder in tree.limit_holders(Owner::Task(no)) {
        let Some(left) = left(tree, holder) else { continue };
        if let Some(limit) = left.short_of(&least) {
            return exhausted(tree, (no, holder), limit, now);
        }
        granted = granted.at_most(left);
    }
    Decision::event(Event::Reserved { no, amount: Box::new(granted) }, Reply::Granted(granted))
}

/// The same for work that wants to know how much there is before it bites.
pub(super) fn leave(tree: &Tree, no: TaskNo, (most, least): (Usage, Usage), now: Time) -> Decision {
    let mut decision = reserve(tree, no, (most, least), now);
    if let Reply::Granted(amount) = decision.reply {
        decision.reply = Reply::Leave { amount, left: left_above(tree, no, now) };
    }
    decision
}

/// What is left for a task of all that holds for it, before it takes anything more.
fn left_above(tree: &Tree, no: TaskNo, now: Time) -> Left {
    let mut least = Left::default();
    for holder in tree.limit_holders(Owner::Task(no)) {
        let Some(limits) = tree.limits(holder) else { continue };
        let shared = holder != Owner::Task(no);
        if limits.tokens.is_some() || limits.money.is_some() {
            let used = tree.committed_usage(holder);
            if let Some(most) = limits.tokens {
                Rest::lower(&mut least.tokens, Rest::of(most, used.tokens, shared));
            }
            if let Some(most) = limits.money {
                Rest::lower(&mut least.money, Rest::of(most.0, used.money.0, shared));
            }
        }
    }
    for holder in tree.upwards(Owner::Task(no)).filter_map(Owner::task) {
        for deadline in deadlines(tree, holder, now) {
            let left = deadline.at.since(now).0;
            let shared = holder != no || deadline.from != no;
            Rest::lower(&mut least.time, Rest { left, of: deadline.limit.0, shared });
        }
    }
    least
}

/// The deadlines that end a task: of its own time limit, and the one that it has inherited.
pub(super) fn deadlines(
    tree: &Tree,
    no: TaskNo,
    now: Time,
) -> impl Iterator<Item = InheritedDeadline> {
    let row = tree.get(no);
    let at = row.and_then(|row| match row.clock() {
        Clock::Unlimited => None,
        Clock::Ticking { until } => Some(until),
        Clock::Stopped { left } => Some(now.after(left)),
    });
    let own = tree.limits(Owner::Task(no)).and_then(|limits| limits.time);
    let is_top = tree.owner_of(no) == Some(Owner::Session);
    let of_session = tree.row().limits.time.filter(|_| is_top);
    let limit = own.into_iter().chain(of_session).min();
    let limit = limit.unwrap_or_default();
    let own = at.map(|at| InheritedDeadline { at, limit, from: no });
    own.into_iter().chain(row.and_then(TaskRow::inherited_deadline))
}

/// Whether no budget holds here: then there is nothing to set anything aside from.
pub(crate) fn is_unmetered(tree: &Tree, no: TaskNo) -> bool {
    let mut limits = tree.limit_holders(Owner::Task(no)).filter_map(|holder| tree.limits(holder));
    limits.all(|limits| limits.tokens.is_none() && limits.money.is_none())
}

/// Charges what was set aside by work that will say no more of it. What was under way may have been
/// paid for: a budget errs on the safe side, and the account says that it does.
pub(super) fn unsettled(no: TaskNo, row: &TaskRow) -> Option<Draft> {
    let reserved = row.reserved();
    let spent = Box::new(reserved);
    (!reserved.is_none()).then(|| Event::Charged { no, spent, at_most: true }.into())
}

/// Charges what was set aside by work that has ended, if that has not been done.
pub(super) fn settled(tree: &Tree, (no, row): (TaskNo, &TaskRow), how: &EndedHow) -> Option<Draft> {
    match how {
        EndedHow::CutShort { spent: Some(spent), .. } if !row.reserved().is_none() => {
            let spent = Box::new(spent.at_most(row.reserved()));
            Some(Event::Charged { no, spent, at_most: false }.into())
        }
        EndedHow::CutShort { spent: Some(spent), .. } if is_unmetered(tree, no) => {
            Some(Event::Charged { no, spent: Box::new(*spent), at_most: false }.into())
        }
        // Who fails in the middle of something has not said what it cost.
        EndedHow::Aborted | EndedHow::CutShort { .. } | EndedHow::Failed { .. } => {
            unsettled(no, row)
        }
        EndedHow::Returned(_) => None,
    }
}

/// What a holder's budget still allows.
fn left(tree: &Tree, holder: Owner) -> Option<Usage> {
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
fn exhausted(tree: &Tree, (no, holder): (TaskNo, Owner), limit: LimitKind, now: Time) -> Decision {
    let owners: Vec<TaskNo> = tree.upwards(Owner::Task(no)).filter_map(Owner::task).collect();
    let ends = holder.task().filter(|holder| owners.contains(holder)).or(owners.last().copied());
    let event = ends.and_then(|no| fail(tree, no, Failure::Budget { limit }, now));
    Decision {
        drafts: event.into_iter().map(Draft::from).collect(),
        reply: Reply::Exhausted(limit),
    }
}
