//! Stopping: kind first, firm at the deadline, verified within a bound.

use std::sync::Arc;

use super::budget::deadlines;
use super::scope::{Steering, fence, no_such_task, resolve_to_steer, steers};
use super::{Decision, Draft, Reply, Stopped};
use crate::call::Answer;
use crate::command::{Caller, End, EndedHow, Stop, StopTarget};
use crate::event::Event;
use crate::ids::{Millis, Owner, TaskNo, Time};
use crate::json::Json;
use crate::outcome::{Cancelled, Failed, Failure, Late, Outcome, StopOrder, Stopper, Verified};
use crate::refusal::Refusal;
use crate::spec::DeadlineScope;
use crate::task::{InheritedDeadline, State, StopCause, StopStage, TaskRow};
use crate::tree::{Tree, sweeps_children};

/// How long a stop stays kind unless the task or the order says otherwise.
pub(crate) const GRACE_DEFAULT: Millis = Millis(5_000);
/// How long a firm stop may take before the run ends unconfirmed.
pub(crate) const FIRM_BOUND: Millis = Millis(5_000);

pub(super) fn stop(tree: &Tree, stop: &Stop, now: Time) -> Result<Decision, Refusal> {
    fence(tree, &stop.caller)?;
    let targets = match &stop.target {
        StopTarget::Task(task) => {
            vec![resolve_to_steer(tree, &stop.caller, task, Steering::Stop)?]
        }
        StopTarget::Itself => match stop.caller {
            Caller::Task { no, .. } => vec![no],
            Caller::Operator | Caller::Client(_) => {
                return Err(Refusal::invalid(
                    "only a task can stop itself; name the task you mean",
                ));
            }
        },
        StopTarget::Children => tree
            .children(stop.caller.owner())
            .filter(|no| tree.get(*no).is_some_and(TaskRow::is_living))
            .filter(|no| steers(tree, &stop.caller, *no))
            .collect(),
    };
    let order = Arc::new(StopOrder {
        by: match (&stop.target, &stop.caller) {
            (StopTarget::Itself, _) => Stopper::Itself,
            (_, Caller::Operator) => Stopper::Operator,
            (_, Caller::Client(_)) => Stopper::Client,
            (_, Caller::Task { .. }) => Stopper::Owner,
        },
        reason: stop.reason.clone(),
        grace: stop.grace,
    });
    let mut reached = Stopped { tasks: 0, already: true };
    let mut drafts = Vec::new();
    for no in targets {
        let row = tree.get(no).ok_or_else(|| no_such_task(tree, no))?;
        if row.is_living() {
            reached.tasks += tree.living_below(no) + 1;
        }
        let event = stop_one(tree, no, &order, now);
        reached.already &= event.is_none() || matches!(row.state, State::Stopping(_));
        drafts.extend(event.map(Draft::from));
    }
    let answer = Answer::Value(Json::of(&reached)?);
    let decision = Decision { drafts, reply: Reply::Stopped(reached) };
    Ok(decision.recorded_for(stop.caller.task(), stop.call, "stop", answer))
}

/// What an order does to one task; its children follow in slices. `None` when it has been told.
pub(crate) fn stop_one(
    tree: &Tree,
    no: TaskNo,
    order: &Arc<StopOrder>,
    now: Time,
) -> Option<Event> {
    let row = tree.get(no)?;
    match &row.state {
        State::Running => {
            let grace = order.grace.or(row.spec.grace).unwrap_or(GRACE_DEFAULT);
            let cause = Box::new(StopCause::Order(order.clone()));
            Some(Event::StopAsked { no, cause, deadline: now.after(grace) })
        }
        State::Queued(_) | State::Waiting => {
            let (order, partial) = (order.clone(), row.partial());
            let cancelled = Cancelled { order, late: None, partial, verified: Verified::Gone };
            Some(over(tree, no, Arc::new(Outcome::Cancelled(cancelled))))
        }
        State::Closing { outcome } => match &**outcome {
            // The result came first, but the run has not ended: commit order decides.
            Outcome::Succeeded { result } if !sweeps_children(row) => {
                let cancelled = Cancelled {
                    order: order.clone(),
                    late: Some(Late::Result(result.clone())),
                    partial: None,
                    verified: Verified::Gone,
                };
                Some(over(tree, no, Arc::new(Outcome::Cancelled(cancelled))))
            }
            _ => None,
        },
        // Told again with less grace: the sooner deadline holds, here and below.
        State::Stopping(stopping) if stopping.stage == StopStage::Asked => {
            let deadline = now.after(order.grace?);
            let cause = match &stopping.cause {
                StopCause::Order(_) => StopCause::Order(order.clone()),
                failure @ StopCause::Failure(_) => failure.clone(),
            };
            let cause = Box::new(cause);
            (deadline < stopping.deadline).then_some(Event::StopAsked { no, cause, deadline })
        }
        State::Stopping(_) | State::Ended(_) => None,
    }
}

/// Ends the holder of a limit that was reached, and with it its subtree.
pub(crate) fn fail(tree: &Tree, no: TaskNo, failure: Failure, now: Time) -> Option<Event> {
    let row = tree.get(no)?;
    match &row.state {
        State::Running => {
            let grace = row.spec.grace.unwrap_or(GRACE_DEFAULT);
            let cause = Box::new(StopCause::Failure(failure));
            Some(Event::StopAsked { no, cause, deadline: now.after(grace) })
        }
        State::Queued(_) | State::Waiting => {
            let failed = Failed { failure, partial: row.partial(), verified: Verified::Gone };
            Some(over(tree, no, Arc::new(Outcome::Failed(failed))))
        }
        State::Closing { outcome } if !sweeps_children(row) => {
            let partial = match &**outcome {
                Outcome::Succeeded { result } => Some(result.clone()),
                Outcome::Failed(_) | Outcome::Cancelled(_) => None,
            };
            let failed = Failed { failure, partial, verified: Verified::Gone };
            Some(over(tree, no, Arc::new(Outcome::Failed(failed))))
        }
        State::Closing { .. } | State::Stopping(_) | State::Ended(_) => None,
    }
}

/// Own work is over: the run ends, or closes while children live.
fn over(tree: &Tree, no: TaskNo, outcome: Arc<Outcome>) -> Event {
    match (tree.living_below(no), tree.get(no)) {
        (0, Some(row)) => Event::Ended { no, run: row.run, outcome, lingering: false },
        _ => Event::Closing { no, outcome },
    }
}

/// Own work ended by itself. Kept children pass to the session, unless a stop is on its way to them.
pub(super) fn finish(tree: &Tree, no: TaskNo, outcome: Outcome, now: Time) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    let Some(row) = tree.get(no) else { return drafts };
    let stopped = stopped_above(tree, Owner::Task(no)).is_some();
    let mut left = 0;
    for child in tree.children(Owner::Task(no)) {
        let Some(row) = tree.get(child).filter(|row| row.is_living()) else { continue };
        if row.spec.keep && !stopped && !row.is_ending() {
            drafts.push(pass(tree, (child, row), &drafts, now).into());
        } else {
            left += 1;
        }
    }
    let outcome = Arc::new(outcome);
    drafts.push(Draft::from(if left == 0 {
        Event::Ended { no, run: row.run, outcome, lingering: false }
    } else {
        Event::Closing { no, outcome }
    }));
    drafts
}

fn pass(tree: &Tree, (no, row): (TaskNo, &TaskRow), before: &[Draft], now: Time) -> Event {
    let passed_before = |name: &crate::name::Name| {
        before.iter().any(|draft| match &draft.event {
            Event::PassedToSession { no, .. } => tree
                .get(*no)
                .is_some_and(|row| row.name.as_ref().is_some_and(|other| other.same_as(name))),
            _ => false,
        })
    };
    let name_dropped = row.name.as_ref().is_some_and(|name| {
        tree.living_named(Owner::Session, name).is_some() || passed_before(name)
    });
    let deadline = match row.spec.deadline_scope() {
        DeadlineScope::Task | DeadlineScope::Descendants => nearest_deadline(tree, row.owner, now),
        DeadlineScope::Nobody => None,
    };
    Event::PassedToSession { no, name_dropped, deadline }
}

/// The first deadline that would end a holder, and with it all that it owns, or that ends what a kept
/// holder starts.
fn nearest_deadline(tree: &Tree, holder: Owner, now: Time) -> Option<InheritedDeadline> {
    let above = tree.upwards(holder).filter_map(Owner::task);
    let ending = above.flat_map(|no| deadlines(tree, no, now));
    ending.chain(tree.descendants_deadline(holder)).min_by_key(|deadline| deadline.at)
}

/// How a run ends whose performer says that it is over.
pub(super) fn outcome_of(tree: &Tree, row: &TaskRow, end: &End) -> Outcome {
    let cause = match &row.state {
        State::Stopping(stopping) => Some(stopping.cause.clone()),
        _ => stopped_above(tree, row.owner).map(StopCause::Order),
    };
    match cause {
        None => match &end.how {
            EndedHow::Returned(result) => Outcome::Succeeded { result: result.clone() },
            EndedHow::Failed { failure, partial } => Outcome::Failed(Failed {
                failure: failure.clone(),
                partial: partial.clone(),
                verified: end.verified.clone(),
            }),
            EndedHow::CutShort { partial, .. } => Outcome::Failed(Failed {
                failure: unasked(),
                partial: partial.clone(),
                verified: end.verified.clone(),
            }),
            EndedHow::Aborted => Outcome::failed(unasked()),
        },
        Some(StopCause::Order(order)) => Outcome::Cancelled(Cancelled {
            order,
            late: match &end.how {
                EndedHow::Returned(result) => Some(Late::Result(result.clone())),
                EndedHow::Failed { failure, .. } => Some(Late::Failure(failure.clone())),
                EndedHow::CutShort { .. } | EndedHow::Aborted => None,
            },
            partial: match &end.how {
                EndedHow::CutShort { partial, .. } | EndedHow::Failed { partial, .. } => {
                    partial.clone()
                }
                EndedHow::Returned(_) | EndedHow::Aborted => None,
            },
            verified: end.verified.clone(),
        }),
        Some(StopCause::Failure(failure)) => Outcome::Failed(Failed {
            failure,
            partial: match &end.how {
                EndedHow::Returned(result) => Some(result.clone()),
                EndedHow::Failed { partial, .. } | EndedHow::CutShort { partial, .. } => {
                    partial.clone()
                }
                EndedHow::Aborted => None,
            },
            verified: end.verified.clone(),
        }),
    }
}

fn unasked() -> Failure {
    Failure::Lost { by: "its performer".into(), evidence: "it ended without a word".into() }
}

/// The order that a stop further up will bring, if one is on its way down.
pub(crate) fn stopped_above(tree: &Tree, owner: Owner) -> Option<Arc<StopOrder>> {
    tree.upwards(owner).find_map(|holder| order_below(tree, holder))
}

/// The order under which the children of a holder are being stopped.
pub(crate) fn order_below(tree: &Tree, holder: Owner) -> Option<Arc<StopOrder>> {
    let by = |by| Arc::new(StopOrder { by, reason: None, grace: None });
    match holder {
        Owner::Session => match tree.row().state {
            crate::tree::SessionState::Open => None,
            _ => Some(by(Stopper::SessionClosed)),
        },
        Owner::Task(no) => {
            let row = tree.get(no)?;
            match &row.state {
                State::Stopping(stopping) => Some(match &stopping.cause {
                    StopCause::Order(order) => order.clone(),
                    StopCause::Failure(_) => by(Stopper::ParentEnded),
                }),
                State::Closing { outcome } if sweeps_children(row) => Some(match &**outcome {
                    Outcome::Cancelled(cancelled) => cancelled.order.clone(),
                    _ => by(Stopper::ParentEnded),
                }),
                _ => None,
            }
        }
    }
}

/// How a run ends whose performer never said that it is over.
pub(super) fn unconfirmed(row: &TaskRow) -> Option<Outcome> {
    let State::Stopping(stopping) = &row.state else { return None };
    Some(match &stopping.cause {
        StopCause::Order(order) => Outcome::Cancelled(Cancelled {
            order: order.clone(),
            late: None,
            partial: None,
            verified: Verified::Unconfirmed,
        }),
        StopCause::Failure(failure) => Outcome::Failed(Failed {
            failure: failure.clone(),
            partial: None,
            verified: Verified::Unconfirmed,
        }),
    })
}
