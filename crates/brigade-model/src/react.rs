//! What follows from an event: more events, and actions.

use crate::action::{Action, Start};
use crate::decide::budget::is_unmetered;
use crate::decide::news::any as has_news;
use crate::decide::stop::{order_below, stop_one};
use crate::decide::{
    Draft, EntryDraft, answer_to, is_queued_at, released, satisfied, start_or_queue,
};
use crate::event::Event;
use crate::ids::{CallIndex, Owner, TaskNo, Time};
use crate::outcome::Outcome;
use crate::task::{State, TaskRow};
use crate::tree::{SessionState, Tree};
use crate::work::{InboxMode, WakeOn};

/// Follow-ups of one event, looked at right after it was applied.
#[derive(Debug, Default)]
pub(crate) struct Reaction {
    pub(crate) drafts: Vec<Draft>,
    pub(crate) actions: Vec<Action>,
    /// Slots may have become free from here upwards.
    pub(crate) freed: Option<Owner>,
}

pub(crate) fn react(tree: &Tree, event: &Event, entry: Option<&EntryDraft>, now: Time) -> Reaction {
    let mut reaction = Reaction::default();
    match event {
        Event::Granted(_) => reaction.drafts = released(tree),
        Event::Spawned(spawned) if spawned.queued.is_none() => {
            reaction.actions = start(tree, spawned.no);
        }
        Event::Started { no, .. } => reaction.actions = start(tree, *no),
        Event::RunOpened { no, owner, .. } => {
            let row = tree.get(*no);
            reaction.drafts.extend(row.map(|row| start_or_queue(tree, *no, row).into()));
            // It joins its owner's present run, with an earlier result that nobody took.
            if let Owner::Task(owner) = owner {
                reaction.drafts.extend(next_answer(tree, *owner, now));
            }
            // It may come with more slots for tasks that it kept in an earlier run.
            reaction.freed = Some(Owner::Task(*no));
        }
        Event::Parked { no, .. } | Event::Heard { no } => {
            reaction.drafts = next_answer(tree, *no, now);
        }
        Event::Recorded { no, index, .. } => reaction.actions = tell(tree, *no, *index, entry),
        Event::Answered { no, index, .. } => {
            reaction.actions = tell(tree, *no, *index, entry);
            if let Some(row) = tree.get(*no) {
                reaction.drafts = next_answer(tree, *no, now);
                if reaction.drafts.is_empty() {
                    reaction.drafts = wake(tree, *no, row);
                }
            }
        }
        Event::MessageSent(message) => match message.to {
            Owner::Session => {}
            Owner::Task(no) => arrived(tree, no, message, now, &mut reaction),
        },
        Event::StopAsked { no, deadline, .. } => {
            reaction.actions.extend(tree.get(*no).map(|row| Action::Stop {
                no: *no,
                attempt: row.attempt,
                deadline: *deadline,
            }));
        }
        Event::StopForced { no, .. } => {
            let kill = tree.get(*no).map(|row| Action::Kill { no: *no, attempt: row.attempt });
            reaction.actions.extend(kill);
        }
        Event::Closing { no, .. } => {
            // Its own work is over, and its slot is for others.
            reaction.freed = Some(tree.limit_holder(*no));
            reaction.actions.push(Action::Forget { no: *no });
            if tree.living_below(*no) == 0 {
                reaction.drafts = closed(tree, *no);
            }
        }
        Event::Ended { no, outcome, .. } => ended(tree, *no, outcome, now, &mut reaction),
        Event::Suspended { no, .. }
        | Event::Queued { no, .. }
        | Event::Recovered { no, .. }
        | Event::SlotReturned { no } => reaction.freed = Some(tree.limit_holder(*no)),
        Event::LimitsSet { of, .. } => reaction.freed = Some(*of),
        _ => {}
    }
    reaction
}

/// Begins an attempt. Messages that came while nobody was at work are handed over after it.
fn start(tree: &Tree, no: TaskNo) -> Vec<Action> {
    let Some(row) = tree.get(no) else { return Vec::new() };
    let attempt = row.attempt;
    let mut actions = vec![Action::Start(Start {
        session: tree.row().name.clone(),
        no,
        run: row.run,
        attempt,
        spawner: row.spawner,
        spec: row.spec.clone(),
        journal: row.journal,
        open: row.calls.clone(),
        state: row.extra.as_ref().and_then(|extra| extra.state.clone()),
        watch: row.watch(),
        at_leave: is_unmetered(tree, no) && !has_news(tree, no, row),
    })];
    if row.spec.work.conduct().inbox == InboxMode::Push {
        let unread = tree.inbox(Owner::Task(no)).cloned();
        actions.extend(unread.map(|message| Action::Push { no, attempt, message }));
    }
    actions
}

/// What the work hears of an entry of its journal, which is the last one.
fn tell(tree: &Tree, no: TaskNo, index: CallIndex, entry: Option<&EntryDraft>) -> Vec<Action> {
    let (Some(row), Some(entry)) = (tree.get(no), entry) else { return Vec::new() };
    let (attempt, ordinal, answer) = (row.attempt, row.journal - 1, entry.answer.clone());
    vec![Action::Tell { no, attempt, index, ordinal, answer }]
}

/// Answers the first open call whose condition holds, unless the work has yet to react to an
/// earlier answer. The others get their turn after it.
fn next_answer(tree: &Tree, no: TaskNo, now: Time) -> Vec<Draft> {
    let Some(row) = tree.get(no).filter(|row| row.told.is_none()) else { return Vec::new() };
    let call = row.calls.iter().find(|call| satisfied(tree, no, call, now));
    call.map_or_else(Vec::new, |call| answer_to(tree, no, call))
}

fn wake(tree: &Tree, no: TaskNo, row: &TaskRow) -> Vec<Draft> {
    let enough = match row.spec.work.conduct().wake {
        WakeOn::AnyAnswer => true,
        WakeOn::AllAnswers => row.calls.is_empty(),
    };
    match row.state {
        State::Waiting if enough => vec![start_or_queue(tree, no, row).into()],
        _ => Vec::new(),
    }
}

fn arrived(
    tree: &Tree,
    no: TaskNo,
    message: &std::sync::Arc<crate::message::Message>,
    now: Time,
    reaction: &mut Reaction,
) {
    let Some(row) = tree.get(no) else { return };
    reaction.drafts = next_answer(tree, no, now);
    if row.spec.work.conduct().inbox == InboxMode::Push && row.is_performed() {
        let (attempt, message) = (row.attempt, message.clone());
        reaction.actions.push(Action::Push { no, attempt, message });
    } else if message.interrupt && row.is_performed() {
        reaction.actions.push(Action::Interrupt { no, attempt: row.attempt });
    }
}

fn ended(tree: &Tree, no: TaskNo, outcome: &Outcome, now: Time, reaction: &mut Reaction) {
    let Some(row) = tree.get(no) else { return };
    reaction.freed = Some(row.limit_holder());
    if !outcome.is_success() {
        reaction.actions.push(Action::Forget { no });
    }
    let unread: Vec<_> = tree.inbox(Owner::Task(no)).map(|message| message.no).collect();
    if !unread.is_empty() {
        let reason = format!("{} ended before it read this", row.address(no)).into();
        let event = Event::DeadLettered { to: Owner::Task(no), messages: unread, reason };
        reaction.drafts.push(event.into());
    }
    match row.owner {
        Owner::Session => {
            if tree.row().state == SessionState::Closing && tree.living() == 0 {
                reaction.drafts.push(Event::SessionClosed.into());
            }
        }
        Owner::Task(owner) => {
            reaction.drafts.extend(closed(tree, owner));
            reaction.drafts.extend(next_answer(tree, owner, now));
        }
    }
}

/// Ends a task that waited only for the last of its children.
fn closed(tree: &Tree, no: TaskNo) -> Vec<Draft> {
    let row = tree.get(no).filter(|_| tree.living_below(no) == 0);
    match row.map(|row| (row.run, &row.state)) {
        Some((run, State::Closing { outcome })) => {
            vec![Event::Ended { no, run, outcome: outcome.clone(), lingering: false }.into()]
        }
        _ => Vec::new(),
    }
}

/// The next task that gets a slot which became free at or above `from`.
pub(crate) fn grant(tree: &Tree, from: Owner) -> Option<Draft> {
    tree.limit_holders(from).find_map(|holder| {
        let no = tree.queue_head(holder)?;
        let row = tree.get(no).filter(|row| is_queued_at(row, holder))?;
        match tree.full_above(row.limit_holder()) {
            Some(full) if full == holder => None,
            _ => Some(start_or_queue(tree, no, row).into()),
        }
    })
}

/// What a stop on its way down does to the next task that it reaches.
pub(crate) fn sweep_next(tree: &Tree, now: Time) -> Option<Vec<Draft>> {
    let no = *tree.sweep.front()?;
    let mut drafts = vec![Event::Swept { count: 1 }.into()];
    let order = tree.owner_of(no).and_then(|owner| order_below(tree, owner));
    drafts.extend(order.and_then(|order| stop_one(tree, no, &order, now)).map(Draft::from));
    Some(drafts)
}
