//! What an event does to a tree. The only code that changes one.

use std::sync::Arc;

use crate::approval::Grants;
use crate::event::{Event, EventRecord, SpawnedEvent};
use crate::ids::{Attempt, ConversationId, Epoch, MessageNo, Millis, Owner, RunNo, Time};
use crate::limits::{Limits, Usage};
use crate::message::Receipt;
use crate::outcome::Outcome;
use crate::shared::Shared;
use crate::spawn_rate::Paid;
use crate::stall::Nudged;
use crate::task::{
    Clock, Delivery, EarlierRun, Ended, Extra, Queued, Spawner, State, StopStage, Stopping, TaskRow,
};
use crate::tree::{SessionState, Tree, TreeRow, sweeps_children};
use crate::work::WakeOn;

/// How many verdicts a row has.
const RULED_KEPT: usize = 8;

impl Tree {
    /// A tree from its first event.
    pub fn open(record: &EventRecord, epoch: Epoch) -> Option<Self> {
        let Event::SessionOpened { name, limits } = &record.event else { return None };
        Some(Self::from_row(TreeRow {
            id: record.tree,
            name: name.clone(),
            opened: record.at,
            state: SessionState::Open,
            limits: **limits,
            usage: Usage::NONE,
            seq: record.seq,
            now: record.at,
            last_task: None,
            last_message: MessageNo(0),
            epoch,
            shared: Shared::default(),
            grants: Grants::default(),
            paid: Paid::default(),
        }))
    }
}

/// Applies one event. Events of a tree are applied in order, each once.
pub fn apply(tree: &mut Tree, record: &EventRecord) {
    tree.row.seq = record.seq;
    tree.row.now = record.at;
    let at = record.at;
    match &record.event {
        Event::SessionOpened { .. } => {}
        Event::SessionClosing { .. } => {
            tree.row.state = SessionState::Closing;
            tree.sweep_children(Owner::Session);
        }
        Event::SessionClosed => tree.row.state = SessionState::Closed,
        Event::LimitsSet { of, limits } => apply_limits(tree, *of, limits, at),
        Event::Spawned(spawned) => apply_spawned(tree, record, spawned),
        Event::Started { no, attempt } => tree.edit(*no, |row| begin(row, *attempt, at)),
        Event::Queued { no, why } => tree.edit(*no, |row| {
            let ticket = match &row.state {
                State::Queued(queued) => queued.ticket,
                _ => record.seq,
            };
            stop_clock(row, at);
            row.state = State::Queued(Queued { ticket, why: why.clone() });
        }),
        Event::Recovered { no, crashes, until } => tree.edit(*no, |row| {
            stop_clock(row, at);
            row.crashes = *crashes;
            row.state = State::Queued(Queued {
                ticket: record.seq,
                why: crate::task::QueuedWhy::Backoff { until: *until },
            });
        }),
        Event::Recorded { no, .. } => tree.edit(*no, |row| {
            row.journal += 1;
            progressed(row, at);
        }),
        Event::Parked { no, call } => {
            tree.edit(*no, |row| {
                // Most tasks wait for one thing, and there may be a million of them.
                row.calls.reserve_exact(1);
                row.calls.push((**call).clone());
                progressed(row, at);
            });
            tree.recount_waits(*no);
        }
        Event::Answered { no, index, .. } => {
            tree.edit(*no, |row| {
                if row.spec.work.conduct().wake == WakeOn::AnyAnswer {
                    row.told = Some(row.journal);
                }
                settle_call(row, *index, at);
            });
            answered(tree, *no, *index);
        }
        Event::Ruled { no, index, verdict } => tree.edit(*no, |row| {
            let ruled = &mut row.extra_mut().ruled;
            if ruled.len() >= RULED_KEPT {
                ruled.remove(0);
            }
            ruled.push((*index, (**verdict).clone()));
        }),
        Event::Granted(grant) => tree.row.grants.add(grant),
        Event::GrantRevoked { grant } => tree.row.grants.remove(*grant),
        Event::Abandoned { no, index, .. } => {
            tree.edit(*no, |row| settle_call(row, *index, at));
            answered(tree, *no, *index);
        }
        Event::Heard { no } => tree.edit(*no, |row| row.told = None),
        Event::Suspended { no, partial } => tree.edit(*no, |row| {
            row.state = State::Waiting;
            if partial.is_some() || row.extra.is_some() {
                row.extra_mut().partial.clone_from(partial);
            }
        }),
        Event::Progressed { no, note } => tree.edit(*no, |row| {
            row.extra_mut().progress = Some(note.clone());
            stirred(row, at);
        }),
        Event::StateSet { no, state } => tree.edit(*no, |row| {
            row.extra_mut().state = Some(state.clone());
            stirred(row, at);
        }),
        Event::Shared { name, value, .. } => tree.row.shared.set(name, value, record.seq),
        Event::Stalled { no, nudged } => tree.edit(*no, |row| stalled(row, *nudged, at)),
        Event::Reserved { no, amount } => tree.edit(*no, |row| {
            let extra = row.extra_mut();
            extra.reserved = extra.reserved.plus(**amount);
        }),
        Event::Charged { no, spent, at_most } => {
            tree.edit(*no, |row| row.extra_mut().reserved = Usage::NONE);
            tree.charge(*no, **spent, if *at_most { **spent } else { Usage::NONE });
        }
        Event::MessageSent(message) => {
            tree.row.last_message = message.no;
            tree.push_message(message.clone(), Receipt::Accepted);
        }
        Event::MessageDelivered { to, message } => {
            tree.take_message(*to, *message, Receipt::Delivered);
        }
        Event::MessageRead { to, message } => tree.take_message(*to, *message, Receipt::Read),
        Event::MessageUnknown { to, message } => {
            tree.take_message(*to, *message, Receipt::DeliveryUnknown);
        }
        Event::DeadLettered { to, messages, reason } => {
            for message in messages {
                tree.take_message(*to, *message, Receipt::Dead(reason.clone()));
            }
        }
        Event::StopAsked { no, cause, deadline } => {
            tree.edit(*no, |row| {
                row.calls.clear();
                row.state = State::Stopping(Stopping {
                    cause: (**cause).clone(),
                    deadline: *deadline,
                    stage: StopStage::Asked,
                });
            });
            tree.recount_waits(*no);
            tree.sweep_children(Owner::Task(*no));
        }
        Event::StopForced { no, deadline } => tree.edit(*no, |row| {
            if let State::Stopping(stopping) = &mut row.state {
                stopping.stage = StopStage::Forced;
                stopping.deadline = *deadline;
            }
        }),
        Event::Swept { count } => {
            let count = (*count as usize).min(tree.sweep.len());
            tree.sweep.drain(..count);
        }
        Event::Closing { no, outcome } => apply_closing(tree, *no, outcome),
        Event::Ended { no, run: _, outcome, lingering } => {
            apply_ended(tree, *no, outcome, *lingering);
        }
        Event::SlotReturned { no } => {
            tree.edit(*no, |row| {
                if let State::Ended(ended) = &mut row.state {
                    ended.lingering = false;
                }
            });
            let above: Vec<_> =
                tree.limit_holders(Owner::Task(*no)).filter_map(Owner::task).collect();
            above.into_iter().for_each(|no| tree.mark_evictable(no));
        }
        Event::PassedToSession { no, name_dropped, deadline } => {
            tree.rehome(*no, Owner::Session, *name_dropped);
            if let Some(deadline) = deadline {
                tree.inherit_deadline(*no, *deadline);
            }
        }
        Event::Collected { runs } => {
            for (no, run) in runs {
                tree.edit(*no, |row| collect(row, *run));
                tree.mark_evictable(*no);
            }
        }
        Event::RunOpened { no, owner, limits, name_dropped, conversation } => {
            apply_run_opened(tree, *no, *owner, limits.as_deref());
            if let Some(conversation) = conversation {
                tree.edit(*no, |row| set_conversation(row, conversation));
            }
            if *name_dropped {
                tree.rename_none(*no);
            }
        }
    }
}

fn set_conversation(row: &mut TaskRow, conversation: &ConversationId) {
    if let Some(client) = &mut row.client {
        client.conversation = Some(conversation.clone());
    }
}

fn apply_limits(tree: &mut Tree, of: Owner, limits: &Limits, at: Time) {
    let no = match of {
        Owner::Session => {
            tree.row.limits = *limits;
            return;
        }
        Owner::Task(no) => no,
    };
    let owner = tree.owner_of(no).unwrap_or(Owner::Session);
    let old = tree.get(no).and_then(|row| row.limits.clone());
    let before = time_limit(tree, owner, old.as_deref());
    let after = time_limit(tree, owner, Some(limits));
    tree.edit(no, |row| {
        row.limits = Some(Box::new(*limits));
        if before != after {
            change_clock(row, before, after, at);
        }
    });
}

/// The time that a run has used already counts for its new limit too, where it was counted.
fn change_clock(row: &mut TaskRow, before: Option<Millis>, after: Option<Millis>, at: Time) {
    let changed = |left: u64, before: Millis, after: Millis| {
        left.saturating_add(after.0).saturating_sub(before.0)
    };
    let clock = match (row.clock(), before, after) {
        (_, _, None) => Clock::Unlimited,
        (Clock::Ticking { until }, Some(before), Some(after)) => {
            Clock::Ticking { until: Time(changed(until.0, before, after)) }
        }
        (Clock::Stopped { left }, Some(before), Some(after)) => {
            Clock::Stopped { left: Millis(changed(left.0, before, after)) }
        }
        (_, _, Some(left)) if matches!(row.state, State::Queued(_)) => Clock::Stopped { left },
        (_, _, Some(left)) => Clock::Ticking { until: at.after(left) },
    };
    if clock != row.clock() {
        row.extra_mut().clock = clock;
    }
}

fn apply_spawned(tree: &mut Tree, record: &EventRecord, spawned: &SpawnedEvent) {
    let at = record.at;
    tree.row.last_task = Some(spawned.no);
    count_total(tree, spawned.owner);
    count_rate(tree, spawned.owner, at);
    let limits = spawned.spec.all_limits();
    let state = match &spawned.queued {
        None => State::Running,
        Some(why) => State::Queued(Queued { ticket: record.seq, why: why.clone() }),
    };
    let time = time_limit(tree, spawned.owner, limits.as_deref());
    let by = spawned.owner.task();
    let spawner = by.and_then(|no| Some(Spawner(no, tree.get(no)?.attempt)));
    let mut row = TaskRow {
        spec: spawned.spec.clone(),
        name: spawned.spec.name.clone(),
        owner: spawned.owner,
        owner_run: spawned.owner_run,
        call: spawned.call,
        spawner,
        client: spawned.client.clone(),
        run: RunNo::FIRST,
        attempt: Attempt(u32::from(spawned.queued.is_none())),
        crashes: 0,
        journal: 0,
        spawned: at,
        moved: at,
        state,
        told: None,
        calls: Vec::new(),
        limits,
        extra: None,
    };
    set_clock(&mut row, time, at);
    let deadline = tree.inherited_at_start(spawned.owner, &spawned.spec);
    if deadline.is_some() {
        row.extra_mut().deadline = deadline;
    }
    tree.insert(spawned.no, row);
    tree.touch(spawned.no);
}

/// Counts a spawn for the total limits above it.
fn count_total(tree: &mut Tree, owner: Owner) {
    let mut counted = Vec::new();
    let mut top = None;
    for holder in tree.total_holders(owner) {
        if let Owner::Task(no) = holder {
            top = Some(no);
            if tree.limits(holder).is_some_and(|limits| limits.total.is_some()) {
                counted.push(no);
            }
        }
    }
    if let Some(top) = top
        && tree.row.limits.total.is_some()
        && !counted.contains(&top)
    {
        counted.push(top);
    }
    for no in counted {
        tree.edit(no, |row| row.extra_mut().total += 1);
    }
}

/// Counts a spawn for the spawn rates above it.
fn count_rate(tree: &mut Tree, owner: Owner, at: Time) {
    let rated = |holder: &Owner| tree.limits(*holder)?.spawn_rate.map(|rate| (*holder, rate));
    let holders: Vec<_> = tree.limit_holders(owner).filter_map(|holder| rated(&holder)).collect();
    for (holder, rate) in holders {
        match holder {
            Owner::Session => tree.row.paid = rate.after_one(tree.row.paid, at),
            Owner::Task(no) => tree.edit(no, |row| {
                let extra = row.extra_mut();
                extra.paid = rate.after_one(extra.paid, at);
            }),
        }
    }
}

fn time_limit(tree: &Tree, owner: Owner, own: Option<&Limits>) -> Option<Millis> {
    let inherited = match owner {
        Owner::Session => tree.row.limits.time,
        Owner::Task(_) => None,
    };
    [own.and_then(|limits| limits.time), inherited].into_iter().flatten().min()
}

fn set_clock(row: &mut TaskRow, time: Option<Millis>, at: Time) {
    let clock = match time {
        None => Clock::Unlimited,
        Some(left) if matches!(row.state, State::Running) => {
            Clock::Ticking { until: at.after(left) }
        }
        Some(left) => Clock::Stopped { left },
    };
    if clock != row.clock() {
        row.extra_mut().clock = clock;
    }
}

fn begin(row: &mut TaskRow, attempt: Attempt, at: Time) {
    row.state = State::Running;
    row.attempt = attempt;
    row.moved = at;
    if let Some(extra) = &mut row.extra {
        extra.stalled = false;
        if let Clock::Stopped { left } = extra.clock {
            extra.clock = Clock::Ticking { until: at.after(left) };
        }
    }
}

fn stop_clock(row: &mut TaskRow, at: Time) {
    if let Some(extra) = &mut row.extra
        && let Clock::Ticking { until } = extra.clock
    {
        extra.clock = Clock::Stopped { left: until.since(at) };
    }
}

fn settle_call(row: &mut TaskRow, index: crate::ids::CallIndex, at: Time) {
    row.calls.retain(|call| call.index != index);
    row.journal += 1;
    progressed(row, at);
}

/// Something was recorded that the next attempt does not have to do again.
fn progressed(row: &mut TaskRow, at: Time) {
    row.crashes = 0;
    let journal = row.journal;
    if let Some(extra) = &mut row.extra
        && extra.nudged.is_past(journal)
    {
        extra.nudged = Nudged::default();
    }
    stirred(row, at);
}

fn stalled(row: &mut TaskRow, nudged: bool, at: Time) {
    let journal = row.journal;
    let extra = row.extra_mut();
    extra.stalled = true;
    if nudged {
        extra.nudged = Nudged { times: extra.nudged.times.saturating_add(1), at, journal };
    }
}

fn stirred(row: &mut TaskRow, at: Time) {
    row.moved = at;
    if let Some(extra) = &mut row.extra {
        extra.stalled = false;
    }
}

/// A wait that was answered no longer keeps its tasks in memory.
fn answered(tree: &mut Tree, no: crate::ids::TaskNo, index: crate::ids::CallIndex) {
    let owner = Owner::Task(no);
    if tree.node(owner).is_some_and(|node| node.waits.iter().any(|wait| wait.index == index)) {
        tree.recount_waits(no);
        let children: Vec<_> = tree.children(owner).collect();
        for child in children {
            if tree.get(child).is_some_and(TaskRow::is_collected) {
                tree.mark_evictable(child);
            }
        }
    }
}

fn apply_closing(tree: &mut Tree, no: crate::ids::TaskNo, outcome: &Arc<Outcome>) {
    let swept = tree.get(no).is_some_and(sweeps_children);
    tree.edit(no, |row| {
        row.calls.clear();
        row.state = State::Closing { outcome: outcome.clone() };
    });
    tree.recount_waits(no);
    if !swept && tree.get(no).is_some_and(sweeps_children) {
        tree.sweep_children(Owner::Task(no));
    }
}

fn apply_ended(tree: &mut Tree, no: crate::ids::TaskNo, outcome: &Arc<Outcome>, lingering: bool) {
    let at = tree.row.now;
    let was_living = tree.get(no).is_some_and(TaskRow::is_living);
    tree.edit(no, |row| {
        row.calls.clear();
        row.crashes = 0;
        if let Some(extra) = &mut row.extra {
            extra.reserved = Usage::NONE;
            // The outcome has it, or something better.
            extra.partial = None;
        }
        row.state = State::Ended(Ended {
            outcome: outcome.clone(),
            at,
            delivery: Delivery::Pending,
            lingering,
        });
    });
    tree.recount_waits(no);
    if was_living && let Some(Owner::Task(owner)) = tree.owner_of(no) {
        tree.count_down_waits(owner, no);
    }
}

fn collect(row: &mut TaskRow, run: RunNo) {
    if run == row.run
        && let State::Ended(ended) = &mut row.state
    {
        ended.delivery = Delivery::Collected;
    }
    if let Some(extra) = &mut row.extra {
        extra.earlier.retain(|earlier| earlier.run != run);
    }
}

fn apply_run_opened(
    tree: &mut Tree,
    no: crate::ids::TaskNo,
    owner: Owner,
    limits: Option<&Limits>,
) {
    let at = tree.row.now;
    if tree.owner_of(no) != Some(owner) {
        tree.rehome(no, owner, false);
    }
    let limits = match limits {
        Some(limits) => Some(Box::new(*limits)),
        None => tree.get(no).and_then(|row| row.limits.clone()),
    };
    let time = time_limit(tree, owner, limits.as_deref());
    let deadline = tree.get(no).and_then(|row| tree.inherited_at_start(owner, &row.spec));
    let ticket = tree.row.seq;
    let asked_by = owner.task().and_then(|owner| tree.get(owner)).map(|row| row.run);
    tree.edit(no, |row| {
        let asked_by = asked_by.filter(|run| *run != row.owner_run);
        if asked_by.is_some() || row.extra.is_some() {
            row.extra_mut().asked_by = asked_by;
        }
        if let State::Ended(ended) = &row.state
            && ended.delivery == Delivery::Pending
        {
            let earlier = EarlierRun { run: row.run, outcome: ended.outcome.clone(), at: ended.at };
            row.extra_mut().earlier.push(earlier);
        }
        row.run = row.run.next();
        row.moved = at;
        if let Some(extra) = &mut row.extra {
            (extra.stalled, extra.nudged) = (false, Nudged::default());
            // They were those of the run that ended.
            extra.progress = None;
            extra.deadline = None;
            extra.descendants_deadline = None;
        }
        if deadline.is_some() {
            row.extra_mut().deadline = deadline;
        }
        row.limits = limits;
        // Between this event and the start that follows it there is no holder to queue at.
        row.state =
            State::Queued(Queued { ticket, why: crate::task::QueuedWhy::Backoff { until: at } });
        set_clock(row, time, at);
        if let Some(extra) = row.extra.as_deref()
            && *extra == Extra::default()
        {
            row.extra = None;
        }
    });
    if let Owner::Task(owner) = owner {
        tree.recount_waits(owner);
    }
}
