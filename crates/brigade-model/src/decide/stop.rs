//! Stops tasks: gracefully, by force at the deadline, and unconfirmed after a second bound.

use std::sync::Arc;

use super::budget::deadlines;
use super::scope::{ControlVerb, fence, may_control, no_such_task, resolve_controllable};
use super::{CommandReply, Decision, Draft, StopResult};
use crate::call::CallCompletion;
use crate::command::{Caller, EndReport, StopCommand, StopTarget, WorkResult};
use crate::entry_label::EntryLabel;
use crate::event::Event;
use crate::ids::{Millis, Owner, TaskNo, Time};
use crate::json::Json;
use crate::outcome::{
    CancelledOutcome, EndConfirmation, FailedOutcome, Failure, LateResult, Outcome, StopInitiator,
    StopOrder,
};
use crate::refusal::Refusal;
use crate::spec::DeadlineScope;
use crate::task::{InheritedDeadline, StopCause, StopPhase, TaskRow, TaskState};
use crate::task_tree::{TaskTree, TaskView, is_stopping_children};
use crate::work::Work;

/// The time between a graceful and a forced stop, unless the task or the order overrides it.
pub(crate) const GRACE_DEFAULT: Millis = Millis(5_000);
/// The time that a forced stop may take before the run ends unconfirmed.
pub(crate) const FORCED_STOP_TIMEOUT: Millis = Millis(5_000);

/// The survivor of a run that ended while nobody could ask its remote agent to end its work.
const UNASKED_REMOTE_WORK: &str =
    "its work at a remote agent, which was not asked to end it and may still run";

pub(super) fn stop(tree: &TaskTree, stop: &StopCommand, now: Time) -> Result<Decision, Refusal> {
    fence(tree, &stop.caller)?;
    let targets = match &stop.target {
        StopTarget::Task(task) => {
            vec![resolve_controllable(tree, &stop.caller, task, ControlVerb::Stop)?]
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
            .filter(|no| tree.get(*no).is_some_and(TaskRow::is_alive))
            .filter(|no| may_control(tree, &stop.caller, *no))
            .collect(),
    };
    let order = Arc::new(StopOrder {
        by: match (&stop.target, &stop.caller) {
            (StopTarget::Itself, _) => StopInitiator::Itself,
            (_, Caller::Operator) => StopInitiator::Operator,
            (_, Caller::Client(_)) => StopInitiator::Client,
            (_, Caller::Task { .. }) => StopInitiator::Owner,
        },
        reason: stop.reason.clone(),
        grace: stop.grace,
    });
    let mut result = StopResult { tasks: 0, already_stopped: true };
    let mut drafts = Vec::new();
    for no in targets {
        let row = tree.get(no).ok_or_else(|| no_such_task(tree, no))?;
        if row.is_alive() {
            result.tasks += tree.alive_descendants(no) + 1;
        }
        let event = stop_one(tree, no, &order, now);
        result.already_stopped &= event.is_none() || matches!(row.state, TaskState::Stopping(_));
        drafts.extend(event.map(Draft::from));
    }
    let completion = CallCompletion::Value(Json::of(&result)?);
    let decision = Decision { drafts, reply: CommandReply::Stopped(result) };
    Ok(decision.record_for(stop.caller.task(), stop.call, EntryLabel::Stop, completion))
}

/// Returns the effect of an order on one task; its children follow in slices. `None` if the order
/// changes nothing.
pub(crate) fn stop_one(
    tree: &TaskTree,
    no: TaskNo,
    order: &Arc<StopOrder>,
    now: Time,
) -> Option<Event> {
    let row = tree.get(no)?;
    match &row.state {
        TaskState::Running => {
            let grace = order.grace.or(row.spec.grace).unwrap_or(GRACE_DEFAULT);
            let cause = Box::new(StopCause::Order(order.clone()));
            Some(Event::StopRequested { no, cause, deadline: now.after(grace) })
        }
        TaskState::Queued(_) | TaskState::Waiting => {
            let order = order.clone();
            let partial = row.partial();
            let cancelled =
                CancelledOutcome { order, late: None, partial, confirmation: unasked_end(row) };
            Some(end_or_close(tree, no, Arc::new(Outcome::Cancelled(cancelled))))
        }
        // Its host carries out the stop when it returns.
        TaskState::Away(_) => {
            let outcome = unconfirmed_outcome(&StopCause::Order(order.clone()));
            Some(end_or_close(tree, no, Arc::new(outcome)))
        }
        TaskState::Closing { outcome } => match &**outcome {
            // The result came first, but the run has not ended: commit order decides.
            Outcome::Succeeded { result } if !is_stopping_children(row) => {
                let cancelled = CancelledOutcome {
                    order: order.clone(),
                    late: Some(LateResult::Result(result.clone())),
                    partial: None,
                    confirmation: EndConfirmation::Confirmed,
                };
                Some(end_or_close(tree, no, Arc::new(Outcome::Cancelled(cancelled))))
            }
            _ => None,
        },
        // A second stop with less grace: the earlier deadline applies, here and in the subtree.
        TaskState::Stopping(stopping) if stopping.phase == StopPhase::Graceful => {
            let deadline = now.after(order.grace?);
            let cause = match &stopping.cause {
                StopCause::Order(_) => StopCause::Order(order.clone()),
                failure @ StopCause::Failure(_) => failure.clone(),
            };
            let cause = Box::new(cause);
            (deadline < stopping.deadline).then_some(Event::StopRequested { no, cause, deadline })
        }
        TaskState::Stopping(_) | TaskState::Ended(_) => None,
    }
}

/// Ends the holder of a limit that was reached, and with it its subtree.
pub(crate) fn fail_task(tree: &TaskTree, no: TaskNo, failure: Failure, now: Time) -> Option<Event> {
    let row = tree.get(no)?;
    match &row.state {
        TaskState::Running => {
            let grace = row.spec.grace.unwrap_or(GRACE_DEFAULT);
            let cause = Box::new(StopCause::Failure(failure));
            Some(Event::StopRequested { no, cause, deadline: now.after(grace) })
        }
        TaskState::Queued(_) | TaskState::Waiting => {
            let failed =
                FailedOutcome { failure, partial: row.partial(), confirmation: unasked_end(row) };
            Some(end_or_close(tree, no, Arc::new(Outcome::Failed(failed))))
        }
        TaskState::Away(_) => {
            let outcome = unconfirmed_outcome(&StopCause::Failure(failure));
            Some(end_or_close(tree, no, Arc::new(outcome)))
        }
        TaskState::Closing { outcome } if !is_stopping_children(row) => {
            let partial = match &**outcome {
                Outcome::Succeeded { result } => Some(result.clone()),
                Outcome::Failed(_) | Outcome::Cancelled(_) => None,
            };
            let failed =
                FailedOutcome { failure, partial, confirmation: EndConfirmation::Confirmed };
            Some(end_or_close(tree, no, Arc::new(Outcome::Failed(failed))))
        }
        TaskState::Closing { .. } | TaskState::Stopping(_) | TaskState::Ended(_) => None,
    }
}

/// Returns the confirmation of the end of a run that no performer was asked to end. An earlier attempt
/// of it may have left remote work, of which only its backend knows. Before its first journal entry,
/// or while it waits for others, a run has none.
pub(super) fn unasked_end(row: &TaskRow) -> EndConfirmation {
    let may_work_remotely = match &row.spec.work {
        Work::Agent(agent) => agent.works_remotely && row.journal_len > 0,
        _ => false,
    };
    match may_work_remotely && row.state != TaskState::Waiting {
        true => EndConfirmation::Survivors(vec![UNASKED_REMOTE_WORK.into()]),
        false => EndConfirmation::Confirmed,
    }
}

/// Ends a run whose own work is over, or closes it while children are alive.
fn end_or_close(tree: &TaskTree, no: TaskNo, outcome: Arc<Outcome>) -> Event {
    match (tree.alive_descendants(no), tree.get(no)) {
        (0, Some(row)) => Event::Ended { no, run: row.run, outcome, lingering: false },
        _ => Event::Closing { no, outcome },
    }
}

/// Ends a run whose own work ended by itself. Kept children pass to the session, unless a stop is
/// on its way to them.
pub(super) fn finish(tree: &TaskTree, no: TaskNo, outcome: Outcome, now: Time) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    let Some(row) = tree.get(no) else { return drafts };
    let stopped = stop_order_above(tree, Owner::Task(no)).is_some();
    let mut awaited = 0;
    for child in tree.children(Owner::Task(no)) {
        let Some(row) = tree.get(child).filter(|row| row.is_alive()) else { continue };
        if row.spec.keep && !stopped && !row.is_ending() {
            drafts.push(pass_to_session(tree, TaskView { no: child, row }, &drafts, now).into());
        } else {
            awaited += 1;
        }
    }
    let outcome = Arc::new(outcome);
    drafts.push(Draft::from(if awaited == 0 {
        Event::Ended { no, run: row.run, outcome, lingering: false }
    } else {
        Event::Closing { no, outcome }
    }));
    drafts
}

fn pass_to_session(tree: &TaskTree, task: TaskView<'_>, before: &[Draft], now: Time) -> Event {
    let TaskView { no, row } = task;
    let passed_before = |name: &crate::name::TaskName| {
        before.iter().any(|draft| match &draft.event {
            Event::PassedToSession { no, .. } => tree
                .get(*no)
                .is_some_and(|row| row.name.as_ref().is_some_and(|other| other.same_as(name))),
            _ => false,
        })
    };
    let name_dropped = row.name.as_ref().is_some_and(|name| {
        tree.find_alive_by_name(Owner::Session, name).is_some() || passed_before(name)
    });
    let deadline = match row.spec.deadline_scope() {
        DeadlineScope::Task | DeadlineScope::Descendants => nearest_deadline(tree, row.owner, now),
        DeadlineScope::Nobody => None,
    };
    Event::PassedToSession { no, name_dropped, deadline }
}

/// Returns the first deadline that would end a holder and everything that it owns, or the tasks
/// that a kept holder starts.
fn nearest_deadline(tree: &TaskTree, holder: Owner, now: Time) -> Option<InheritedDeadline> {
    let owners = tree.owner_chain(holder).filter_map(Owner::task);
    let deadlines = owners.flat_map(|no| deadlines(tree, no, now));
    deadlines.chain(tree.descendants_deadline(holder)).min_by_key(|deadline| deadline.at)
}

/// Returns the outcome of a run whose performer reported its end.
pub(super) fn outcome_of(tree: &TaskTree, row: &TaskRow, end: &EndReport) -> Outcome {
    let cause = match &row.state {
        TaskState::Stopping(stopping) => Some(stopping.cause.clone()),
        _ => stop_order_above(tree, row.owner).map(StopCause::Order),
    };
    match cause {
        None => match &end.result {
            WorkResult::Returned(result) => Outcome::Succeeded { result: result.clone() },
            WorkResult::Failed { failure, partial } => Outcome::Failed(FailedOutcome {
                failure: failure.clone(),
                partial: partial.clone(),
                confirmation: end.confirmation.clone(),
            }),
            WorkResult::Stopped { partial, .. } => Outcome::Failed(FailedOutcome {
                failure: unreported_end(),
                partial: partial.clone(),
                confirmation: end.confirmation.clone(),
            }),
            WorkResult::Aborted => Outcome::failed(unreported_end()),
        },
        Some(StopCause::Order(order)) => Outcome::Cancelled(CancelledOutcome {
            order,
            late: match &end.result {
                WorkResult::Returned(result) => Some(LateResult::Result(result.clone())),
                WorkResult::Failed { failure, .. } => Some(LateResult::Failure(failure.clone())),
                WorkResult::Stopped { .. } | WorkResult::Aborted => None,
            },
            partial: match &end.result {
                WorkResult::Stopped { partial, .. } | WorkResult::Failed { partial, .. } => {
                    partial.clone()
                }
                WorkResult::Returned(_) | WorkResult::Aborted => None,
            },
            confirmation: end.confirmation.clone(),
        }),
        Some(StopCause::Failure(failure)) => Outcome::Failed(FailedOutcome {
            failure,
            partial: match &end.result {
                WorkResult::Returned(result) => Some(result.clone()),
                WorkResult::Failed { partial, .. } | WorkResult::Stopped { partial, .. } => {
                    partial.clone()
                }
                WorkResult::Aborted => None,
            },
            confirmation: end.confirmation.clone(),
        }),
    }
}

fn unreported_end() -> Failure {
    Failure::Lost { by: "its performer".into(), evidence: "it ended without a report".into() }
}

/// Returns the order that a stop of an ancestor will bring, if one is on its way down.
pub(crate) fn stop_order_above(tree: &TaskTree, owner: Owner) -> Option<Arc<StopOrder>> {
    tree.owner_chain(owner).find_map(|holder| stop_order_for_children(tree, holder))
}

/// Returns the order under which the children of a holder are being stopped.
pub(crate) fn stop_order_for_children(tree: &TaskTree, holder: Owner) -> Option<Arc<StopOrder>> {
    let by = |by| Arc::new(StopOrder { by, reason: None, grace: None });
    match holder {
        Owner::Session => match tree.row().state {
            crate::task_tree::SessionState::Open => None,
            _ => Some(by(StopInitiator::SessionClosed)),
        },
        Owner::Task(no) => {
            let row = tree.get(no)?;
            match &row.state {
                TaskState::Stopping(stopping) => Some(match &stopping.cause {
                    StopCause::Order(order) => order.clone(),
                    StopCause::Failure(_) => by(StopInitiator::ParentEnded),
                }),
                TaskState::Closing { outcome } if is_stopping_children(row) => {
                    Some(match &**outcome {
                        Outcome::Cancelled(cancelled) => cancelled.order.clone(),
                        _ => by(StopInitiator::ParentEnded),
                    })
                }
                _ => None,
            }
        }
    }
}

/// Returns the outcome of a run whose performer did not confirm its end.
pub(super) fn unconfirmed_outcome(cause: &StopCause) -> Outcome {
    match cause {
        StopCause::Order(order) => Outcome::Cancelled(CancelledOutcome {
            order: order.clone(),
            late: None,
            partial: None,
            confirmation: EndConfirmation::Unconfirmed,
        }),
        StopCause::Failure(failure) => Outcome::Failed(FailedOutcome {
            failure: failure.clone(),
            partial: None,
            confirmation: EndConfirmation::Unconfirmed,
        }),
    }
}
