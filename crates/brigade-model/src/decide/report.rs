//! What performers say. Only the attempt that is under way is listened to.

use super::stop::{finish, outcome_of};
use super::{CommandReply, Decision, Draft, EntryDraft, budget, inbox, park};
use crate::command::{
    AfterPark, AttemptReport, CallRecord, EndReport, PushResult, ReportCommand, WorkResult,
};
use crate::event::Event;
use crate::ids::{CallIndex, Owner, TaskNo, Time};
use crate::refusal::Refusal;
use crate::task::{QueueReason, TaskRow, TaskState};
use crate::task_tree::TaskTree;
use crate::work::{InboxMode, ParentClosePolicy};

pub(super) fn report(
    tree: &TaskTree,
    report: &ReportCommand,
    now: Time,
) -> Result<Decision, Refusal> {
    let no = report.no;
    let Some(row) = tree.get(no) else { return Err(super::scope::no_such_task(tree, no)) };
    if row.attempt != report.attempt {
        return Err(stale_attempt(report, row));
    }
    if let (TaskState::Ended(ended), AttemptReport::Ended(_)) = (&row.state, &report.report)
        && ended.lingering
    {
        return Ok(Decision::event(Event::SlotReturned { no }, CommandReply::Done));
    }
    if !row.is_performed() {
        return Err(stale_attempt(report, row));
    }
    decide_report(tree, (no, row), &report.report, now)
}

fn decide_report(
    tree: &TaskTree,
    (no, row): (TaskNo, &TaskRow),
    what: &AttemptReport,
    now: Time,
) -> Result<Decision, Refusal> {
    match what {
        AttemptReport::Record(written) => {
            let drafts = record_call(tree, (no, row), written)?;
            Ok(Decision { drafts, reply: CommandReply::Done })
        }
        AttemptReport::WithRecords { records, report: what } => {
            decide_with_records(tree, (no, row), (records, what), now)
        }
        AttemptReport::BeginStep { index, max: most, min: least } => {
            check_recordable(no, row, *index)?;
            inbox::begin_step(tree, (no, row), *index, (*most, *least), now)
        }
        AttemptReport::Park { calls, acked_entries: heard, then } => {
            park::park(tree, (no, row), calls, (*heard, *then), now)
        }
        AttemptReport::Suspend { parked_count: open, partial } => {
            let then = AfterPark::Suspend { parked_count: *open };
            let mut decision = park::park(tree, (no, row), &[], (u32::MAX, then), now)?;
            for draft in &mut decision.drafts {
                if let Event::Suspended { partial: kept, .. } = &mut draft.event {
                    kept.clone_from(partial);
                }
            }
            Ok(decision)
        }
        AttemptReport::Abandon { calls } => {
            let open = calls.iter().filter_map(|index| row.parked_call(*index));
            let drafts = open.map(|call| Draft::call_abandoned(no, call)).collect();
            Ok(Decision { drafts, reply: CommandReply::Done })
        }
        AttemptReport::Progress(note) => {
            Ok(Decision::event(Event::Progressed { no, note: note.clone() }, CommandReply::Done))
        }
        AttemptReport::State(state) => {
            Ok(Decision::event(Event::StateSet { no, state: state.clone() }, CommandReply::Done))
        }
        AttemptReport::Reserve { most, least } => {
            Ok(budget::reserve(tree, no, (*most, *least), now))
        }
        AttemptReport::Charge(spent) => Ok(Decision::event(
            Event::Charged { no, spent: Box::new(*spent), at_most: false },
            CommandReply::Done,
        )),
        AttemptReport::Pushed { message, result: arrival } => {
            let (to, message) = (Owner::Task(no), *message);
            if !tree.inbox(to).any(|unread| unread.no == message) {
                let address = row.address(no);
                let text = format!("message {message} is not in the inbox of {address}");
                return Err(Refusal::not_found(text));
            }
            Ok(Decision::event(
                match arrival {
                    PushResult::Delivered => Event::MessageDelivered { to, message },
                    PushResult::Refused { reason } => {
                        let reason = reason.clone();
                        Event::DeadLettered { to, messages: vec![message], reason }
                    }
                },
                CommandReply::Done,
            ))
        }
        AttemptReport::NoPerformer { reason } => Ok(match row.state {
            TaskState::Running => {
                let why = QueueReason::NoPerformer { reason: reason.clone() };
                Decision::event(Event::Queued { no, reason: why }, CommandReply::Done)
            }
            _ => {
                let end = WorkResult::Aborted.into();
                let outcome = outcome_of(tree, row, &end);
                Decision { drafts: finish(tree, no, outcome, now), reply: CommandReply::Done }
            }
        }),
        AttemptReport::Ended(end) => {
            check_nothing_uncollected(tree, (no, row), end)?;
            let settled = budget::release_reservation(tree, (no, row), &end.result);
            let ending = finish(tree, no, outcome_of(tree, row, end), now);
            Ok(Decision {
                drafts: settled.into_iter().chain(ending).collect(),
                reply: CommandReply::Done,
            })
        }
    }
}

/// What was written down comes first, in the same commit. What is asked after it is decided as if it
/// were not there, which a cost or a record of the same call would make wrong.
fn decide_with_records(
    tree: &TaskTree,
    (no, row): (TaskNo, &TaskRow),
    (records, what): (&[CallRecord], &AttemptReport),
    now: Time,
) -> Result<Decision, Refusal> {
    let settles = records.iter().any(|written| written.spent.is_some());
    let shares = records.iter().filter(|written| !written.shared_writes.is_empty()).count();
    if shares > 1 {
        return Err(Refusal::invalid("only one of several records may change what is shared"));
    }
    match what {
        AttemptReport::BeginStep { index, .. }
            if !settles && records.iter().all(|written| written.index != *index) => {}
        AttemptReport::Record(_) | AttemptReport::Ended(_) => {}
        _ => return Err(Refusal::invalid("this cannot be reported together with records")),
    }
    let mut drafts = Vec::with_capacity(2 * records.len() + 2);
    for written in records {
        drafts.extend(record_call(tree, (no, row), written)?);
    }
    let decision = decide_report(tree, (no, row), what, now)?;
    drafts.extend(decision.drafts);
    Ok(Decision { drafts, reply: decision.reply })
}

fn record_call(
    tree: &TaskTree,
    (no, row): (TaskNo, &TaskRow),
    written: &CallRecord,
) -> Result<Vec<Draft>, Refusal> {
    let CallRecord { index, label, completion: answer, spent, shared_writes: shared } = written;
    check_recordable(no, row, *index)?;
    tree.row().shared_values.check(shared)?;
    let entry = EntryDraft { index: *index, label: label.clone(), completion: answer.clone() };
    let mut drafts = vec![Draft::call_recorded(no, entry)];
    drafts.extend(
        spent.map(|spent| Event::Charged { no, spent: Box::new(spent), at_most: false }.into()),
    );
    drafts.extend(shared.iter().map(|write| {
        Event::SharedValueSet { no, name: write.name.clone(), value: write.value.clone() }.into()
    }));
    Ok(drafts)
}

/// A call is recorded once, and not by a run that is being ended: what it did in its last moments
/// must not stand in the way of the next run.
fn check_recordable(no: TaskNo, row: &TaskRow, index: CallIndex) -> Result<(), Refusal> {
    if !matches!(row.state, TaskState::Running) {
        return Err(Refusal::ended(format!("{} {}", row.address(no), row.state.render_phrase())));
    }
    match row.parked_call(index) {
        Some(_) => Err(Refusal::conflict(format!("call {index} is parked, not under way"))),
        None => Ok(()),
    }
}

/// Work that hears of everything does not succeed with something unheard or still to come.
fn check_nothing_uncollected(
    tree: &TaskTree,
    (no, row): (TaskNo, &TaskRow),
    end: &EndReport,
) -> Result<(), Refusal> {
    let returned =
        matches!(end.result, WorkResult::Returned(_)) && matches!(row.state, TaskState::Running);
    let conduct = row.spec.work.policy();
    let hears = conduct.parent_close == ParentClosePolicy::CollectChildren
        && conduct.inbox_mode == InboxMode::Pull;
    if returned
        && hears
        && (inbox::has_inbox_items(tree, no, row) || inbox::has_awaited_children(tree, no))
    {
        let me = row.address(no);
        return Err(Refusal::conflict(format!("{me} has not heard of everything yet")));
    }
    Ok(())
}

fn stale_attempt(report: &ReportCommand, row: &TaskRow) -> Refusal {
    Refusal::ended(format!(
        "attempt {} of {} is over; it {} in attempt {}",
        report.attempt,
        row.address(report.no),
        row.state.render_phrase(),
        row.attempt
    ))
}
