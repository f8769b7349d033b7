//! What performers say. Only the attempt that is under way is listened to.

use super::stop::{finish, outcome_of};
use super::{Decision, Draft, EntryDraft, Reply, budget, news, park};
use crate::command::{AfterPark, Arrival, End, EndedHow, Report, Reported, Written};
use crate::event::Event;
use crate::ids::{CallIndex, Owner, TaskNo, Time};
use crate::refusal::Refusal;
use crate::task::{QueuedWhy, State, TaskRow};
use crate::tree::Tree;
use crate::work::{InboxMode, OnReturn};

pub(super) fn report(tree: &Tree, report: &Report, now: Time) -> Result<Decision, Refusal> {
    let no = report.no;
    let Some(row) = tree.get(no) else { return Err(super::scope::no_such_task(tree, no)) };
    if row.attempt != report.attempt {
        return Err(stale(report, row));
    }
    if let (State::Ended(ended), Reported::Ended(_)) = (&row.state, &report.what)
        && ended.lingering
    {
        return Ok(Decision::event(Event::SlotReturned { no }, Reply::Done));
    }
    if !row.is_performed() {
        return Err(stale(report, row));
    }
    reported(tree, (no, row), &report.what, now)
}

fn reported(
    tree: &Tree,
    (no, row): (TaskNo, &TaskRow),
    what: &Reported,
    now: Time,
) -> Result<Decision, Refusal> {
    match what {
        Reported::Record(written) => {
            let drafts = written_down(tree, (no, row), written)?;
            Ok(Decision { drafts, reply: Reply::Done })
        }
        Reported::After { records, what } => after(tree, (no, row), (records, what), now),
        Reported::Proceed { index, most, least } => {
            record(no, row, *index)?;
            news::proceed(tree, (no, row), *index, (*most, *least), now)
        }
        Reported::Park { calls, heard, then } => {
            park::park(tree, (no, row), calls, (*heard, *then), now)
        }
        Reported::Rest { open, partial } => {
            let then = AfterPark::Suspend { open: *open };
            let mut decision = park::park(tree, (no, row), &[], (u32::MAX, then), now)?;
            for draft in &mut decision.drafts {
                if let Event::Suspended { partial: kept, .. } = &mut draft.event {
                    kept.clone_from(partial);
                }
            }
            Ok(decision)
        }
        Reported::Abandon { calls } => {
            let open = calls.iter().filter_map(|index| row.open_call(*index));
            let drafts = open.map(|call| Draft::abandoned(no, call)).collect();
            Ok(Decision { drafts, reply: Reply::Done })
        }
        Reported::Progress(note) => {
            Ok(Decision::event(Event::Progressed { no, note: note.clone() }, Reply::Done))
        }
        Reported::State(state) => {
            Ok(Decision::event(Event::StateSet { no, state: state.clone() }, Reply::Done))
        }
        Reported::Reserve { most, least } => Ok(budget::reserve(tree, no, (*most, *least), now)),
        Reported::Charge(spent) => Ok(Decision::event(
            Event::Charged { no, spent: Box::new(*spent), at_most: false },
            Reply::Done,
        )),
        Reported::Pushed { message, arrival } => {
            let (to, message) = (Owner::Task(no), *message);
            if !tree.inbox(to).any(|unread| unread.no == message) {
                let address = row.address(no);
                let text = format!("message {message} is not in the inbox of {address}");
                return Err(Refusal::not_found(text));
            }
            Ok(Decision::event(
                match arrival {
                    Arrival::Arrived => Event::MessageDelivered { to, message },
                    Arrival::Refused { reason } => {
                        let reason = reason.clone();
                        Event::DeadLettered { to, messages: vec![message], reason }
                    }
                },
                Reply::Done,
            ))
        }
        Reported::NoPerformer { reason } => Ok(match row.state {
            State::Running => {
                let why = QueuedWhy::NoPerformer { reason: reason.clone() };
                Decision::event(Event::Queued { no, why }, Reply::Done)
            }
            _ => {
                let end = EndedHow::Aborted.into();
                let outcome = outcome_of(tree, row, &end);
                Decision { drafts: finish(tree, no, outcome, now), reply: Reply::Done }
            }
        }),
        Reported::Ended(end) => {
            hears_first(tree, (no, row), end)?;
            let settled = budget::settled(tree, (no, row), &end.how);
            let ending = finish(tree, no, outcome_of(tree, row, end), now);
            Ok(Decision { drafts: settled.into_iter().chain(ending).collect(), reply: Reply::Done })
        }
    }
}

/// What was written down comes first, in the same commit. What is asked after it is decided as if it
/// were not there, which a cost or a record of the same call would make wrong.
fn after(
    tree: &Tree,
    (no, row): (TaskNo, &TaskRow),
    (records, what): (&[Written], &Reported),
    now: Time,
) -> Result<Decision, Refusal> {
    let settles = records.iter().any(|written| written.spent.is_some());
    let shares = records.iter().filter(|written| !written.shared.is_empty()).count();
    if shares > 1 {
        return Err(Refusal::invalid("only one of several records may change what is shared"));
    }
    match what {
        Reported::Proceed { index, .. }
            if !settles && records.iter().all(|written| written.index != *index) => {}
        Reported::Record(_) | Reported::Ended(_) => {}
        _ => return Err(Refusal::invalid("this cannot be reported together with records")),
    }
    let mut drafts = Vec::with_capacity(2 * records.len() + 2);
    for written in records {
        drafts.extend(written_down(tree, (no, row), written)?);
    }
    let decision = reported(tree, (no, row), what, now)?;
    drafts.extend(decision.drafts);
    Ok(Decision { drafts, reply: decision.reply })
}

fn written_down(
    tree: &Tree,
    (no, row): (TaskNo, &TaskRow),
    written: &Written,
) -> Result<Vec<Draft>, Refusal> {
    let Written { index, label, answer, spent, shared } = written;
    record(no, row, *index)?;
    tree.row().shared.check(shared)?;
    let entry = EntryDraft { index: *index, label: label.clone(), answer: answer.clone() };
    let mut drafts = vec![Draft::recorded(no, entry)];
    drafts.extend(
        spent.map(|spent| Event::Charged { no, spent: Box::new(spent), at_most: false }.into()),
    );
    drafts.extend(shared.iter().map(|write| {
        Event::Shared { no, name: write.name.clone(), value: write.value.clone() }.into()
    }));
    Ok(drafts)
}

/// A call is recorded once, and not by a run that is being ended: what it did in its last moments
/// must not stand in the way of the next run.
fn record(no: TaskNo, row: &TaskRow, index: CallIndex) -> Result<(), Refusal> {
    if !matches!(row.state, State::Running) {
        return Err(Refusal::ended(format!("{} {}", row.address(no), row.state.phrase())));
    }
    match row.open_call(index) {
        Some(_) => Err(Refusal::conflict(format!("call {index} is parked, not under way"))),
        None => Ok(()),
    }
}

/// Work that hears of everything does not succeed with something unheard or still to come.
fn hears_first(tree: &Tree, (no, row): (TaskNo, &TaskRow), end: &End) -> Result<(), Refusal> {
    let returned = matches!(end.how, EndedHow::Returned(_)) && matches!(row.state, State::Running);
    let conduct = row.spec.work.conduct();
    let hears = conduct.on_return == OnReturn::HearChildren && conduct.inbox == InboxMode::Pull;
    if returned && hears && (news::any(tree, no, row) || news::expected(tree, no)) {
        let me = row.address(no);
        return Err(Refusal::conflict(format!("{me} has not heard of everything yet")));
    }
    Ok(())
}

fn stale(report: &Report, row: &TaskRow) -> Refusal {
    Refusal::ended(format!(
        "attempt {} of {} is over; it {} in attempt {}",
        report.attempt,
        row.address(report.no),
        row.state.phrase(),
        row.attempt
    ))
}
