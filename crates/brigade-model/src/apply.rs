//! Applies events to a tree. No other code changes one.

mod run_clock;

use std::sync::Arc;

use crate::approval::ApprovalGrants;
use crate::event::{Event, EventRecord, SpawnedEvent};
use crate::ids::{Attempt, ConversationId, Epoch, MessageNo, Millis, Owner, RunNo, Time};
use crate::limits::{Limits, Usage};
use crate::message::Receipt;
use crate::outcome::Outcome;
use crate::shared_values::SharedValues;
use crate::spawn_rate::SpawnMeter;
use crate::stall::NudgeState;
use crate::task::{
    DecidedApproval, EarlierRun, EndedState, QueuedState, ResultDelivery, RunClock, RunStart,
    SpawningAttempt, StopPhase, StoppingState, TaskExtras, TaskRow, TaskState,
};
use crate::task_tree::{SessionRow, SessionState, TaskTree, is_stopping_children};
use crate::work::WakeOn;
use run_clock::{change_clock, set_clock, stop_clock};

/// The number of verdicts that a row keeps.
const DECIDED_APPROVALS_KEPT: usize = 8;

impl TaskTree {
    /// Creates a tree from its first event.
    pub fn open(record: &EventRecord, epoch: Epoch) -> Option<Self> {
        let Event::SessionOpened { name, limits } = &record.event else { return None };
        Some(Self::from_row(SessionRow {
            id: record.session,
            name: name.clone(),
            opened_at: record.at,
            state: SessionState::Open,
            limits: **limits,
            usage: Usage::NONE,
            seq: record.seq,
            now: record.at,
            last_task: None,
            last_message: MessageNo(0),
            epoch,
            shared_values: SharedValues::default(),
            grants: ApprovalGrants::default(),
            spawn_meter: SpawnMeter::default(),
        }))
    }
}

/// Applies one event. Events of a session are applied in order, each once.
pub fn apply(tree: &mut TaskTree, record: &EventRecord) {
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
        Event::LimitsSet { holder, limits } => apply_limits(tree, *holder, limits, at),
        Event::Spawned(spawned) => apply_spawned(tree, record, spawned),
        Event::Started { no, attempt, host } => tree.edit(*no, |row| {
            start_attempt(row, *attempt, at);
            set_host(row, host);
        }),
        Event::Queued { no, reason } => tree.edit(*no, |row| {
            let ticket = match &row.state {
                TaskState::Queued(queued) => queued.ticket,
                _ => record.seq,
            };
            stop_clock(row, at);
            clear_readiness(row);
            row.state = TaskState::Queued(QueuedState { ticket, reason: reason.clone() });
        }),
        Event::Recovered { no, crashes, until } => tree.edit(*no, |row| {
            stop_clock(row, at);
            row.crashes = *crashes;
            clear_readiness(row);
            row.state = TaskState::Queued(QueuedState {
                ticket: record.seq,
                reason: crate::task::QueueReason::Backoff { until: *until },
            });
        }),
        Event::Away { no, away } => tree.edit(*no, |row| {
            row.state = TaskState::Away((**away).clone());
            row.extras_mut().unattended = false;
        }),
        Event::Unattended { no } => tree.edit(*no, |row| {
            row.extras_mut().unattended = true;
            note_host(row, at);
        }),
        Event::Returned { no } => tree.edit(*no, |row| {
            row.extras_mut().unattended = false;
            note_host(row, at);
        }),
        Event::Ready { no } => tree.edit(*no, |row| {
            row.extras_mut().ready_at = Some(at);
            note_activity(row, at);
        }),
        Event::Recorded { no, .. } => tree.edit(*no, |row| {
            row.journal_len += 1;
            note_progress(row, at);
        }),
        Event::Parked { no, call } => {
            tree.edit(*no, |row| {
                // Most tasks wait for one thing, and there may be a million of them.
                row.parked_calls.reserve_exact(1);
                row.parked_calls.push((**call).clone());
                note_progress(row, at);
            });
            tree.recount_waits(*no);
        }
        Event::CallCompleted { no, index, .. } => {
            tree.edit(*no, |row| {
                if row.spec.work.policy().wake_on == WakeOn::AnyCompletion {
                    row.unacked = Some(row.journal_len);
                }
                remove_parked_call(row, *index, at);
            });
            release_wait(tree, *no, *index);
        }
        Event::ApprovalDecided { no, index, verdict } => tree.edit(*no, |row| {
            let verdicts = &mut row.extras_mut().decided_approvals;
            if verdicts.len() >= DECIDED_APPROVALS_KEPT {
                verdicts.remove(0);
            }
            verdicts.push(DecidedApproval { index: *index, verdict: (**verdict).clone() });
        }),
        Event::GrantAdded(grant) => tree.row.grants.add(grant),
        Event::GrantRevoked { grant } => tree.row.grants.remove(*grant),
        Event::Abandoned { no, index, .. } => {
            tree.edit(*no, |row| remove_parked_call(row, *index, at));
            release_wait(tree, *no, *index);
        }
        Event::Acknowledged { no } => tree.edit(*no, |row| row.unacked = None),
        Event::Suspended { no, partial } => tree.edit(*no, |row| {
            row.state = TaskState::Waiting;
            if partial.is_some() || row.extras.is_some() {
                row.extras_mut().partial.clone_from(partial);
            }
        }),
        Event::Progressed { no, note } => tree.edit(*no, |row| {
            row.extras_mut().progress = Some(note.clone());
            note_activity(row, at);
        }),
        Event::StateSet { no, state } => tree.edit(*no, |row| {
            row.extras_mut().state = Some(state.clone());
            note_activity(row, at);
        }),
        Event::WorktreeSet { no, worktree } => tree.edit(*no, |row| {
            row.extras_mut().worktree = Some(worktree.clone());
            note_activity(row, at);
        }),
        Event::WorktreeReleased { no, state } => tree.edit(*no, |row| {
            if let Some(worktree) = &mut row.extras_mut().worktree {
                worktree.state = *state;
            }
        }),
        Event::SharedValueSet { name, value, .. } => {
            tree.row.shared_values.set(name, value, record.seq)
        }
        Event::Stalled { no, nudged } => tree.edit(*no, |row| note_stall(row, *nudged, at)),
        Event::Reserved { no, amount } => tree.edit(*no, |row| {
            let extra = row.extras_mut();
            extra.reserved = extra.reserved.plus(**amount);
        }),
        Event::Charged { no, spent, at_most } => {
            tree.edit(*no, |row| row.extras_mut().reserved = Usage::NONE);
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
        Event::MessageDeliveryUnknown { to, message } => {
            tree.take_message(*to, *message, Receipt::DeliveryUnknown);
        }
        Event::DeadLettered { to, messages, reason } => {
            for message in messages {
                tree.take_message(*to, *message, Receipt::DeadLettered(reason.clone()));
            }
        }
        Event::StopRequested { no, cause, deadline } => {
            tree.edit(*no, |row| {
                row.parked_calls.clear();
                row.state = TaskState::Stopping(StoppingState {
                    cause: (**cause).clone(),
                    deadline: *deadline,
                    phase: StopPhase::Graceful,
                });
            });
            tree.recount_waits(*no);
            tree.sweep_children(Owner::Task(*no));
        }
        Event::StopForced { no, deadline } => tree.edit(*no, |row| {
            if let TaskState::Stopping(stopping) = &mut row.state {
                stopping.phase = StopPhase::Forced;
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
                if let TaskState::Ended(ended) = &mut row.state {
                    ended.lingering = false;
                }
            });
            let holders: Vec<_> =
                tree.limit_holders(Owner::Task(*no)).filter_map(Owner::task).collect();
            holders.into_iter().for_each(|no| tree.mark_evictable(no));
        }
        Event::PassedToSession { no, name_dropped, deadline } => {
            tree.change_owner(*no, Owner::Session, *name_dropped);
            if let Some(deadline) = deadline {
                tree.inherit_deadline(*no, *deadline);
            }
        }
        Event::Collected { runs } => {
            for collected in runs {
                tree.edit(collected.no, |row| mark_collected(row, collected.run));
                tree.mark_evictable(collected.no);
            }
        }
        Event::RunOpened { no, owner, limits, name_dropped, conversation, earlier_entries } => {
            if earlier_entries.is_some() {
                tree.edit(*no, |row| row.extras_mut().earlier_entries = *earlier_entries);
            }
            apply_run_opened(tree, *no, *owner, limits.as_deref());
            if let Some(conversation) = conversation {
                tree.edit(*no, |row| set_conversation(row, conversation));
            }
            if *name_dropped {
                tree.clear_name(*no);
            }
        }
    }
}

fn set_conversation(row: &mut TaskRow, conversation: &ConversationId) {
    if let Some(client) = &mut row.client {
        client.conversation = Some(conversation.clone());
    }
}

fn apply_limits(tree: &mut TaskTree, holder: Owner, limits: &Limits, at: Time) {
    let no = match holder {
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

fn apply_spawned(tree: &mut TaskTree, record: &EventRecord, spawned: &SpawnedEvent) {
    let at = record.at;
    tree.row.last_task = Some(spawned.no);
    if !spawned.spec.part_of_parent {
        count_total(tree, spawned.owner);
        count_rate(tree, spawned.owner, at);
    }
    let limits = spawned.spec.all_limits();
    let state = match &spawned.queued {
        None => TaskState::Running,
        Some(reason) => {
            TaskState::Queued(QueuedState { ticket: record.seq, reason: reason.clone() })
        }
    };
    let time = time_limit(tree, spawned.owner, limits.as_deref());
    let by = spawned.owner.task();
    let spawner = by.and_then(|no| Some(SpawningAttempt { no, attempt: tree.get(no)?.attempt }));
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
        journal_len: 0,
        spawned_at: at,
        last_activity_at: at,
        state,
        state_changed_at: Some(at),
        run_start: match spawned.queued {
            None => RunStart::At(at),
            Some(_) => RunStart::Pending,
        },
        unacked: None,
        parked_calls: Vec::new(),
        limits,
        extras: None,
    };
    set_host(&mut row, &spawned.host);
    set_clock(&mut row, time, at);
    let deadline = tree.inherited_start_deadline(spawned.owner, &spawned.spec);
    if deadline.is_some() {
        row.extras_mut().inherited_deadline = deadline;
    }
    tree.insert(spawned.no, Arc::new(row));
    tree.mark_dirty(spawned.no);
}

/// Counts a spawn for the total limits that apply to it.
fn count_total(tree: &mut TaskTree, owner: Owner) {
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
        tree.edit(no, |row| row.extras_mut().total_spawned += 1);
    }
}

/// Counts a spawn for the spawn rates that apply to it.
fn count_rate(tree: &mut TaskTree, owner: Owner, at: Time) {
    let rated = |holder: &Owner| tree.limits(*holder)?.spawn_rate.map(|rate| (*holder, rate));
    let holders: Vec<_> = tree.limit_holders(owner).filter_map(|holder| rated(&holder)).collect();
    for (holder, rate) in holders {
        match holder {
            Owner::Session => tree.row.spawn_meter = rate.record_spawn(tree.row.spawn_meter, at),
            Owner::Task(no) => tree.edit(no, |row| {
                let extra = row.extras_mut();
                extra.spawn_meter = rate.record_spawn(extra.spawn_meter, at);
            }),
        }
    }
}

fn time_limit(tree: &TaskTree, owner: Owner, own: Option<&Limits>) -> Option<Millis> {
    let inherited = match owner {
        Owner::Session => tree.row.limits.time,
        Owner::Task(_) => None,
    };
    [own.and_then(|limits| limits.time), inherited].into_iter().flatten().min()
}

fn start_attempt(row: &mut TaskRow, attempt: Attempt, at: Time) {
    row.state = TaskState::Running;
    row.attempt = attempt;
    row.last_activity_at = at;
    clear_readiness(row);
    if row.run_start == RunStart::Pending {
        row.run_start = RunStart::At(at);
    }
    if let Some(extra) = &mut row.extras {
        extra.stalled = false;
        extra.unattended = false;
        if let RunClock::Stopped { remaining } = extra.clock {
            extra.clock = RunClock::Ticking { until: at.after(remaining) };
        }
    }
}

/// Forgets that an earlier attempt was ready.
fn clear_readiness(row: &mut TaskRow) {
    if let Some(extra) = &mut row.extras {
        extra.ready_at = None;
    }
}

/// Notes the host of an attempt. Most tasks have none, and no other fields beside it.
fn set_host(row: &mut TaskRow, host: &Option<Arc<str>>) {
    if host.is_some() || row.extras.is_some() {
        row.extras_mut().host.clone_from(host);
    }
}

fn remove_parked_call(row: &mut TaskRow, index: crate::ids::CallIndex, at: Time) {
    row.parked_calls.retain(|call| call.index != index);
    row.journal_len += 1;
    note_progress(row, at);
}

/// Notes that something was recorded which the next attempt does not have to repeat.
fn note_progress(row: &mut TaskRow, at: Time) {
    row.crashes = 0;
    let journal_len = row.journal_len;
    if let Some(extra) = &mut row.extras
        && extra.nudges.has_progressed_since(journal_len)
    {
        extra.nudges = NudgeState::default();
    }
    note_activity(row, at);
}

/// Notes that the host of a process is there.
fn note_host(row: &mut TaskRow, at: Time) {
    if row.away().is_some() {
        row.state = TaskState::Running;
    }
    note_activity(row, at);
}

fn note_stall(row: &mut TaskRow, nudged: bool, at: Time) {
    let journal_len = row.journal_len;
    let extra = row.extras_mut();
    extra.stalled = true;
    if nudged {
        extra.nudges =
            NudgeState { count: extra.nudges.count.saturating_add(1), last_at: at, journal_len };
    }
}

fn note_activity(row: &mut TaskRow, at: Time) {
    row.last_activity_at = at;
    if let Some(extra) = &mut row.extras {
        extra.stalled = false;
    }
}

/// Lets the tasks of a completed wait be evicted.
fn release_wait(tree: &mut TaskTree, no: crate::ids::TaskNo, index: crate::ids::CallIndex) {
    let owner = Owner::Task(no);
    if tree.links(owner).is_some_and(|node| node.wait_counts.iter().any(|wait| wait.index == index))
    {
        tree.recount_waits(no);
        let children: Vec<_> = tree.children(owner).collect();
        for child in children {
            if tree.get(child).is_some_and(TaskRow::is_collected) {
                tree.mark_evictable(child);
            }
        }
    }
}

fn apply_closing(tree: &mut TaskTree, no: crate::ids::TaskNo, outcome: &Arc<Outcome>) {
    let was_stopping = tree.get(no).is_some_and(is_stopping_children);
    tree.edit(no, |row| {
        row.parked_calls.clear();
        row.state = TaskState::Closing { outcome: outcome.clone() };
    });
    tree.recount_waits(no);
    if !was_stopping && tree.get(no).is_some_and(is_stopping_children) {
        tree.sweep_children(Owner::Task(no));
    }
}

fn apply_ended(
    tree: &mut TaskTree,
    no: crate::ids::TaskNo,
    outcome: &Arc<Outcome>,
    lingering: bool,
) {
    let at = tree.row.now;
    let was_alive = tree.get(no).is_some_and(TaskRow::is_alive);
    tree.edit(no, |row| {
        row.parked_calls.clear();
        row.crashes = 0;
        if let Some(extra) = &mut row.extras {
            extra.reserved = Usage::NONE;
            // The outcome has it, or a complete result.
            extra.partial = None;
        }
        row.state = TaskState::Ended(EndedState {
            outcome: outcome.clone(),
            at,
            delivery: ResultDelivery::Pending,
            lingering,
        });
    });
    tree.recount_waits(no);
    if was_alive && let Some(Owner::Task(owner)) = tree.owner_of(no) {
        tree.count_down_waits(owner, no);
    }
}

fn mark_collected(row: &mut TaskRow, run: RunNo) {
    if run == row.run
        && let TaskState::Ended(ended) = &mut row.state
    {
        ended.delivery = ResultDelivery::Collected;
    }
    if let Some(extra) = &mut row.extras {
        extra.earlier_runs.retain(|earlier| earlier.run != run);
    }
}

fn apply_run_opened(
    tree: &mut TaskTree,
    no: crate::ids::TaskNo,
    owner: Owner,
    limits: Option<&Limits>,
) {
    let at = tree.row.now;
    if tree.owner_of(no) != Some(owner) {
        tree.change_owner(no, owner, false);
    }
    let limits = match limits {
        Some(limits) => Some(Box::new(*limits)),
        None => tree.get(no).and_then(|row| row.limits.clone()),
    };
    let time = time_limit(tree, owner, limits.as_deref());
    let deadline = tree.get(no).and_then(|row| tree.inherited_start_deadline(owner, &row.spec));
    let ticket = tree.row.seq;
    let opened_by = owner.task().and_then(|owner| tree.get(owner)).map(|row| row.run);
    tree.edit(no, |row| {
        let opened_by = opened_by.filter(|run| *run != row.owner_run);
        if opened_by.is_some() || row.extras.is_some() {
            row.extras_mut().opened_by_run = opened_by;
        }
        if let TaskState::Ended(ended) = &row.state
            && ended.delivery == ResultDelivery::Pending
        {
            let earlier =
                EarlierRun { run: row.run, outcome: ended.outcome.clone(), ended_at: ended.at };
            row.extras_mut().earlier_runs.push(earlier);
        }
        row.run = row.run.next();
        row.run_start = RunStart::Pending;
        row.last_activity_at = at;
        if let Some(extra) = &mut row.extras {
            extra.stalled = false;
            extra.nudges = NudgeState::default();
            // These belonged to the run that ended.
            extra.progress = None;
            extra.ready_at = None;
            extra.inherited_deadline = None;
            extra.descendants_deadline = None;
        }
        if deadline.is_some() {
            row.extras_mut().inherited_deadline = deadline;
        }
        row.limits = limits;
        // Between this event and the start that follows it, there is no holder to queue at.
        row.state = TaskState::Queued(QueuedState {
            ticket,
            reason: crate::task::QueueReason::Backoff { until: at },
        });
        set_clock(row, time, at);
        if let Some(extra) = row.extras.as_deref()
            && *extra == TaskExtras::default()
        {
            row.extras = None;
        }
    });
    if let Owner::Task(owner) = owner {
        tree.recount_waits(owner);
    }
}
