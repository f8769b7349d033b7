//! Finds the consequences of an event: further events, and actions.

use std::sync::Arc;

use crate::action::{Action, StartAction};
use crate::decide::budget::is_unmetered;
use crate::decide::inbox::has_inbox_items;
use crate::decide::stop::{stop_one, stop_order_for_children};
use crate::decide::{
    Draft, EntryDraft, complete_call, complete_granted_calls, is_condition_met, is_queued_at,
    start_event, start_or_queue,
};
use crate::event::Event;
use crate::ids::{CallIndex, Owner, TaskNo, Time};
use crate::message::Message;
use crate::task::{QueueReason, TaskRow, TaskState};
use crate::task_tree::{SessionState, TaskTree};
use crate::work::{InboxMode, WakeOn};

/// The consequences of one event, found right after it was applied.
#[derive(Debug, Default)]
pub(crate) struct Reaction {
    pub(crate) drafts: Vec<Draft>,
    /// The holder from which upwards slots may have become free.
    pub(crate) freed: Option<Owner>,
}

/// Finds the consequences of an event and appends its actions.
pub(crate) fn react(
    tree: &TaskTree,
    event: &Event,
    entry: Option<&EntryDraft>,
    now: Time,
    actions: &mut Vec<Action>,
) -> Reaction {
    let mut reaction = Reaction::default();
    match event {
        Event::GrantAdded(_) => reaction.drafts = complete_granted_calls(tree),
        Event::Spawned(spawned) if spawned.queued.is_none() => {
            start(tree, spawned.no, actions);
        }
        Event::Started { no, .. } => start(tree, *no, actions),
        Event::Returned { no } | Event::Unattended { no } => push_unread(tree, *no, actions),
        Event::Ready { no } => {
            if let Some(Owner::Task(owner)) = tree.owner_of(*no) {
                reaction.drafts = complete_next_call(tree, owner, now);
            }
        }
        Event::RunOpened { no, owner, .. } => {
            let row = tree.get(*no);
            reaction.drafts.extend(row.map(|row| start_or_queue(tree, *no, row).into()));
            // It joins its owner's current run, with an earlier result that nobody has collected.
            if let Owner::Task(owner) = owner {
                reaction.drafts.extend(complete_next_call(tree, *owner, now));
            }
            // Its new limits may have more slots for tasks that it kept in an earlier run.
            reaction.freed = Some(Owner::Task(*no));
        }
        Event::Parked { no, .. } | Event::Acknowledged { no } => {
            reaction.drafts = complete_next_call(tree, *no, now);
        }
        Event::Recorded { no, index, .. } => {
            actions.extend(deliver_completion(tree, *no, *index, entry));
        }
        Event::CallCompleted { no, index, .. } => {
            actions.extend(deliver_completion(tree, *no, *index, entry));
            if let Some(row) = tree.get(*no) {
                reaction.drafts = complete_next_call(tree, *no, now);
                if reaction.drafts.is_empty() {
                    reaction.drafts = wake(tree, *no, row);
                }
            }
        }
        Event::MessageSent(message) => match message.to {
            Owner::Session => {}
            Owner::Task(no) => {
                reaction.drafts = complete_next_call(tree, no, now);
                actions.extend(push_or_interrupt(tree, no, message));
            }
        },
        Event::StopRequested { no, deadline, .. } => {
            actions.extend(tree.get(*no).map(|row| Action::Stop {
                no: *no,
                attempt: row.attempt,
                deadline: *deadline,
            }));
        }
        Event::StopForced { no, .. } => {
            let kill = tree.get(*no).map(|row| Action::Kill { no: *no, attempt: row.attempt });
            actions.extend(kill);
        }
        Event::Closing { no, .. } => {
            // Its own work is over, so its slot is free.
            reaction.freed = Some(tree.limit_holder(*no));
            actions.push(Action::Release { no: *no });
            if tree.alive_descendants(*no) == 0 {
                reaction.drafts = end_if_childless(tree, *no);
            }
        }
        Event::Ended { no, outcome, .. } => {
            if !outcome.is_success() {
                actions.push(Action::Release { no: *no });
            }
            react_to_end(tree, *no, now, &mut reaction);
        }
        Event::Suspended { no, .. }
        | Event::Away { no, .. }
        | Event::Queued { no, .. }
        | Event::Recovered { no, .. }
        | Event::SlotReturned { no } => reaction.freed = Some(tree.limit_holder(*no)),
        Event::LimitsSet { holder, .. } => reaction.freed = Some(*holder),
        _ => {}
    }
    reaction
}

/// Starts an attempt, then pushes the messages that arrived while nobody executed the task.
fn start(tree: &TaskTree, no: TaskNo, actions: &mut Vec<Action>) {
    let Some(task) = tree.view(no) else { return };
    let row = task.row;
    let attempt = row.attempt;
    actions.push(Action::Start(StartAction {
        session: tree.row().name.clone(),
        no,
        run: row.run,
        attempt,
        spawner: row.spawner,
        spec: row.spec.clone(),
        journal_len: row.journal_len,
        earlier_entries: row.extras.as_ref().and_then(|extra| extra.earlier_entries),
        parked_calls: row.parked_calls.clone(),
        state: row.extras.as_ref().and_then(|extra| extra.state.clone()),
        worktree: row.worktree().cloned().map(Box::new),
        stall_watch: row.stall_watch(),
        skip_first_gate: is_unmetered(tree, no) && !has_inbox_items(tree, task),
    }));
    push_unread(tree, no, actions);
}

/// Pushes the messages that arrived while nobody executed the task.
fn push_unread(tree: &TaskTree, no: TaskNo, actions: &mut Vec<Action>) {
    let Some(row) = tree.get(no) else { return };
    if row.spec.work.policy().inbox_mode == InboxMode::Push {
        let unread = tree.inbox(Owner::Task(no)).cloned();
        let attempt = row.attempt;
        actions.extend(unread.map(|message| Action::Push { no, attempt, message }));
    }
}

/// Delivers the last journal entry to the attempt.
fn deliver_completion(
    tree: &TaskTree,
    no: TaskNo,
    index: CallIndex,
    entry: Option<&EntryDraft>,
) -> Option<Action> {
    let row = tree.get(no)?;
    let entry = entry?;
    let attempt = row.attempt;
    let ordinal = row.journal_len - 1;
    let completion = entry.completion.clone();
    Some(Action::DeliverCompletion { no, attempt, index, ordinal, completion })
}

/// Completes the first parked call whose condition is met, unless the work has not acknowledged an
/// earlier completion. Other calls follow after the acknowledgement.
fn complete_next_call(tree: &TaskTree, no: TaskNo, now: Time) -> Vec<Draft> {
    let Some(row) = tree.get(no).filter(|row| row.unacked.is_none()) else { return Vec::new() };
    let call = row.parked_calls.iter().find(|call| is_condition_met(tree, no, call, now));
    call.map_or_else(Vec::new, |call| complete_call(tree, no, call))
}

fn wake(tree: &TaskTree, no: TaskNo, row: &TaskRow) -> Vec<Draft> {
    let enough = match row.spec.work.policy().wake_on {
        WakeOn::AnyCompletion => true,
        WakeOn::AllCompletions => row.parked_calls.is_empty(),
    };
    match row.state {
        TaskState::Waiting if enough => vec![start_or_queue(tree, no, row).into()],
        _ => Vec::new(),
    }
}

/// Brings a message to the attempt that executes its recipient.
fn push_or_interrupt(tree: &TaskTree, no: TaskNo, message: &Arc<Message>) -> Option<Action> {
    let row = tree.get(no).filter(|row| row.is_performed())?;
    let attempt = row.attempt;
    if row.spec.work.policy().inbox_mode == InboxMode::Push {
        return Some(Action::Push { no, attempt, message: message.clone() });
    }
    message.interrupt.then_some(Action::Interrupt { no, attempt })
}

fn react_to_end(tree: &TaskTree, no: TaskNo, now: Time, reaction: &mut Reaction) {
    let Some(row) = tree.get(no) else { return };
    reaction.freed = Some(row.limit_holder());
    let unread: Vec<_> = tree.inbox(Owner::Task(no)).map(|message| message.no).collect();
    if !unread.is_empty() {
        let reason = format!("{} ended before it read this", row.address(no)).into();
        let event = Event::DeadLettered { to: Owner::Task(no), messages: unread, reason };
        reaction.drafts.push(event.into());
    }
    match row.owner {
        Owner::Session => {
            if tree.row().state == SessionState::Closing && tree.alive_count() == 0 {
                reaction.drafts.push(Event::SessionClosed.into());
            }
        }
        Owner::Task(owner) => {
            reaction.drafts.extend(end_if_childless(tree, owner));
            reaction.drafts.extend(complete_next_call(tree, owner, now));
        }
    }
}

/// Ends a task that only awaited the last of its children.
fn end_if_childless(tree: &TaskTree, no: TaskNo) -> Vec<Draft> {
    let row = tree.get(no).filter(|_| tree.alive_descendants(no) == 0);
    match row.map(|row| (row.run, &row.state)) {
        Some((run, TaskState::Closing { outcome })) => {
            vec![Event::Ended { no, run, outcome: outcome.clone(), lingering: false }.into()]
        }
        _ => Vec::new(),
    }
}

/// Starts the next task that gets a slot which became free at `from` or at one of its limit
/// holders.
pub(crate) fn grant_slot(tree: &TaskTree, from: Owner) -> Option<Draft> {
    tree.limit_holders(from).find_map(|holder| {
        let no = tree.queue_head(holder)?;
        let row = tree.get(no).filter(|row| is_queued_at(row, holder))?;
        match tree.full_limit_holder(row.limit_holder()) {
            Some(full) if full == holder => None,
            _ => Some(start_or_queue(tree, no, row).into()),
        }
    })
}

/// Starts the first task that queues for the runtime, if the runtime lets one start. If a limit of
/// the session was lowered since the task got its place under it, the task queues there again.
pub(crate) fn grant_runtime_slot(tree: &TaskTree) -> Option<Draft> {
    let no = tree.runtime_queue_head()?;
    let row = tree.get(no)?;
    let event = match tree.exceeded_limit_holder(row.limit_holder()) {
        None => start_event(tree, no, row),
        Some(holder) => Event::Queued { no, reason: QueueReason::RunningLimit(holder) },
    };
    Some(event.into())
}

/// Returns the effect of a stop on a task that it reaches on its way down.
pub(crate) fn stop_swept(tree: &TaskTree, no: TaskNo, now: Time) -> Option<Draft> {
    let order = stop_order_for_children(tree, tree.owner_of(no)?)?;
    stop_one(tree, no, &order, now).map(Draft::from)
}
