//! Decides reports of performers. Only the current attempt may report.

use super::park::ParkRequest;
use super::stop::{finish, outcome_of};
use super::{CommandReply, Decision, Draft, EntryDraft, budget, inbox, park};
use crate::command::{
    AfterPark, AttemptReport, CallRecord, EndReport, PushResult, ReportCommand, WorkResult,
};
use crate::event::Event;
use crate::ids::{CallIndex, Owner, Time};
use crate::refusal::Refusal;
use crate::task::{QueueReason, TaskRow, TaskState};
use crate::task_tree::{TaskTree, TaskView};
use crate::work::{InboxMode, ParentClosePolicy};

pub(super) fn report(
    tree: &TaskTree,
    report: &ReportCommand,
    now: Time,
) -> Result<Decision, Refusal> {
    let no = report.no;
    let Some(task) = tree.view(no) else { return Err(super::scope::no_such_task(tree, no)) };
    let row = task.row;
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
    decide_report(tree, task, &report.report, now)
}

fn decide_report(
    tree: &TaskTree,
    task: TaskView<'_>,
    report: &AttemptReport,
    now: Time,
) -> Result<Decision, Refusal> {
    let TaskView { no, row } = task;
    match report {
        AttemptReport::Record(record) => {
            let drafts = record_call(tree, task, record)?;
            Ok(Decision { drafts, reply: CommandReply::Done })
        }
        AttemptReport::WithRecords { records, report } => {
            decide_with_records(tree, task, records, report, now)
        }
        AttemptReport::BeginStep { index, cost } => {
            check_recordable(task, *index)?;
            inbox::begin_step(tree, task, *index, *cost, now)
        }
        AttemptReport::Park { calls, acked_entries, then } => {
            let request = ParkRequest { calls, acked_entries: *acked_entries, then: *then };
            park::park(tree, task, &request, now)
        }
        AttemptReport::Suspend { parked_count, partial } => {
            let then = AfterPark::Suspend { parked_count: *parked_count };
            let request = ParkRequest { calls: &[], acked_entries: u32::MAX, then };
            let mut decision = park::park(tree, task, &request, now)?;
            for draft in &mut decision.drafts {
                if let Event::Suspended { partial: stored, .. } = &mut draft.event {
                    stored.clone_from(partial);
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
        AttemptReport::Worktree(worktree) => super::worktree::set(task, worktree),
        AttemptReport::Ready => ready(task),
        AttemptReport::Reserve(cost) => Ok(budget::reserve(tree, no, *cost, now)),
        AttemptReport::Charge(spent) => Ok(Decision::event(
            Event::Charged { no, spent: Box::new(*spent), at_most: false },
            CommandReply::Done,
        )),
        AttemptReport::Pushed { message, result } => {
            let to = Owner::Task(no);
            let message = *message;
            if !tree.inbox(to).any(|unread| unread.no == message) {
                let address = task.address();
                let text = format!("message {message} is not in the inbox of {address}");
                return Err(Refusal::not_found(text));
            }
            Ok(Decision::event(
                match result {
                    PushResult::Delivered => Event::MessageDelivered { to, message },
                    PushResult::Refused { reason } => {
                        let reason = reason.clone();
                        Event::DeadLettered { to, messages: vec![message], reason }
                    }
                    PushResult::Unknown => Event::MessageDeliveryUnknown { to, message },
                },
                CommandReply::Done,
            ))
        }
        AttemptReport::NoPerformer { reason } => Ok(match row.state {
            TaskState::Running => {
                let reason = QueueReason::NoPerformer { reason: reason.clone() };
                Decision::event(Event::Queued { no, reason }, CommandReply::Done)
            }
            _ => {
                let end = WorkResult::Aborted.into();
                let outcome = outcome_of(tree, row, &end);
                Decision { drafts: finish(tree, no, outcome, now), reply: CommandReply::Done }
            }
        }),
        AttemptReport::Ended(end) => {
            check_nothing_uncollected(tree, task, end)?;
            let charged = budget::release_reservation(tree, task, &end.result);
            let end_drafts = finish(tree, no, outcome_of(tree, row, end), now);
            Ok(Decision {
                drafts: charged.into_iter().chain(end_drafts).collect(),
                reply: CommandReply::Done,
            })
        }
    }
}

/// Stores that an attempt is ready. A repeated report changes nothing, nor does one of work that is
/// being stopped.
fn ready(task: TaskView<'_>) -> Result<Decision, Refusal> {
    let TaskView { no, row } = task;
    if row.spec.work.readiness_check().is_none() {
        let address = task.address();
        return Err(Refusal::invalid(format!("{address} was started without a readiness check")));
    }
    Ok(match (&row.state, row.ready_at()) {
        (TaskState::Running, None) => Decision::event(Event::Ready { no }, CommandReply::Done),
        _ => Decision::reply(CommandReply::Done),
    })
}

/// Decides a report with records, which come first in the same commit. The report is decided as if
/// they were not there, so a cost or a record of the same call is refused.
fn decide_with_records(
    tree: &TaskTree,
    task: TaskView<'_>,
    records: &[CallRecord],
    report: &AttemptReport,
    now: Time,
) -> Result<Decision, Refusal> {
    let has_cost = records.iter().any(|record| record.spent.is_some());
    let shared_writers = records.iter().filter(|record| !record.shared_writes.is_empty()).count();
    if shared_writers > 1 {
        return Err(Refusal::invalid("only one of several records may change shared values"));
    }
    match report {
        AttemptReport::BeginStep { index, .. }
            if !has_cost && records.iter().all(|record| record.index != *index) => {}
        AttemptReport::Record(_) | AttemptReport::Ended(_) => {}
        _ => return Err(Refusal::invalid("this cannot be reported together with records")),
    }
    let mut drafts = Vec::with_capacity(2 * records.len() + 2);
    for record in records {
        drafts.extend(record_call(tree, task, record)?);
    }
    let decision = decide_report(tree, task, report, now)?;
    drafts.extend(decision.drafts);
    Ok(Decision { drafts, reply: decision.reply })
}

fn record_call(
    tree: &TaskTree,
    task: TaskView<'_>,
    record: &CallRecord,
) -> Result<Vec<Draft>, Refusal> {
    let no = task.no;
    let CallRecord { index, label, completion, spent, shared_writes } = record;
    check_recordable(task, *index)?;
    tree.row().shared_values.check(shared_writes)?;
    let entry = EntryDraft { index: *index, label: label.clone(), completion: completion.clone() };
    let mut drafts = vec![Draft::call_recorded(no, entry)];
    drafts.extend(
        spent.map(|spent| Event::Charged { no, spent: Box::new(spent), at_most: false }.into()),
    );
    drafts.extend(shared_writes.iter().map(|write| {
        Event::SharedValueSet { no, name: write.name.clone(), value: write.value.clone() }.into()
    }));
    Ok(drafts)
}

/// Checks that a call is not parked and its run is not being ended. A call that a run records in
/// its last moments would conflict with the next run.
fn check_recordable(task: TaskView<'_>, index: CallIndex) -> Result<(), Refusal> {
    if !matches!(task.row.state, TaskState::Running) {
        let phrase = task.row.state.render_phrase();
        return Err(Refusal::ended(format!("{} {phrase}", task.address())));
    }
    match task.row.parked_call(index) {
        Some(_) => Err(Refusal::conflict(format!("call {index} is parked, not in progress"))),
        None => Ok(()),
    }
}

/// Refuses a successful end of work that collects its children, while its inbox holds items or a
/// child is alive.
fn check_nothing_uncollected(
    tree: &TaskTree,
    task: TaskView<'_>,
    end: &EndReport,
) -> Result<(), Refusal> {
    let returned = matches!(end.result, WorkResult::Returned(_))
        && matches!(task.row.state, TaskState::Running);
    let policy = task.row.spec.work.policy();
    let collects = policy.parent_close == ParentClosePolicy::CollectChildren
        && policy.inbox_mode == InboxMode::Pull;
    if returned
        && collects
        && (inbox::has_inbox_items(tree, task) || inbox::has_awaited_children(tree, task.no))
    {
        let me = task.address();
        return Err(Refusal::conflict(format!(
            "{me} has unread messages, uncollected results or running children"
        )));
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
