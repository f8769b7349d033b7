//! What is true of every tree after every command.

use std::collections::{BTreeMap, BTreeSet};

use brigade_model::command::Command;
use brigade_model::decide::CommandReply;
use brigade_model::ids::{MessageNo, Owner, TaskNo};
use brigade_model::limits::Usage;
use brigade_model::message::Receipt;
use brigade_model::task::{QueueReason, TaskRow, TaskState};
use brigade_model::task_tree::SessionState;

use crate::naive::Expected;
use crate::rows::{being_stopped, limit_holder, living};
use crate::world::World;

/// The real answer against the one that was predicted.
pub(crate) fn reply(expected: &Expected, reply: &CommandReply, command: &Command) {
    let got = match (expected, reply) {
        (Expected::Accepted, _) => return,
        (Expected::Spawned { existing, .. }, CommandReply::Spawned(spawned)) => {
            assert_eq!(existing.is_some(), spawned.existing, "{command:?}");
            assert!(existing.is_none_or(|no| no == spawned.no), "{command:?}");
            return;
        }
        (Expected::Stopped { reached, already }, CommandReply::Stopped(stopped)) => {
            let got = (stopped.tasks as usize, stopped.already_stopped);
            assert_eq!((reached.len(), *already), got, "{command:?}");
            return;
        }
        (_, CommandReply::Results(endings)) => {
            let told = |e: &brigade_model::call::RunResult| (e.no, e.run, e.collected_before);
            let set: BTreeSet<_> = endings.iter().map(told).collect();
            assert_eq!(set.len(), endings.len(), "an ending was told twice");
            Expected::Endings(set)
        }
        (_, CommandReply::Pending(pending)) => Expected::Pending(pending.iter().copied().collect()),
        (_, other) => panic!("{command:?}: expected {expected:?}, got {other:?}"),
    };
    assert_eq!(*expected, got, "{command:?}");
}

pub(crate) fn all(world: &World, command: &Command) {
    stored_folded_and_live_agree(world);
    for (no, row) in world.folded.rows() {
        lives_under_the_living(world, no, row);
        is_performed_only_if_started(world, no, row);
        queues_only_where_it_is_full(world, no, row);
        has_no_answer_outstanding(world, no, row);
        has_its_holders_in_memory(world, no, row);
        if !world.tree.has_sweep() {
            was_reached_by_stops(world, no, row);
        }
    }
    names_are_unique(world);
    usage_adds_up(world);
    if world.tree.row().state == SessionState::Closed {
        assert_eq!(world.tree.alive_count(), 0, "a closed session has living tasks");
    }
    if matches!(command, Command::Tick) {
        for (no, row) in world.folded.rows() {
            ends_at_its_inherited_deadline(world, no, row);
        }
        let due = world.tree.next_due().filter(|due| *due <= world.now);
        assert_eq!(due, None, "a timer is due after the tick");
    }
}

/// Also what a refusal is held against: it leaves the tree as the store has it.
pub(crate) fn stored_folded_and_live_agree(world: &World) {
    let (tree, folded, store) = (&world.tree, &world.folded, &world.store);
    assert_eq!(tree.row(), folded.row());
    assert!(folded.rows().eq(store.tasks.iter().map(|(no, row)| (*no, row))), "rows differ");
    for (no, row) in tree.rows() {
        assert_eq!(Some(row), store.tasks.get(&no), "{no:?} in memory is not as stored");
        let below = folded.alive_descendants(no);
        assert_eq!(tree.alive_descendants(no), below, "{no:?} has lost count of its tasks");
    }
    let living_count = store.tasks.values().filter(|row| living(row)).count();
    assert_eq!(tree.alive_count() as usize, living_count);
    let accepted = store.messages.values().filter(|row| row.receipt == Receipt::Accepted);
    let mut kept: BTreeMap<Owner, Vec<MessageNo>> = BTreeMap::new();
    for row in accepted {
        kept.entry(row.message.to).or_default().push(row.message.no);
    }
    let owners = tree.rows().map(|(no, _)| Owner::Task(no)).chain([Owner::Session]);
    for owner in owners {
        let unread: Vec<MessageNo> = tree.inbox(owner).map(|message| message.no).collect();
        assert_eq!(unread, kept.remove(&owner).unwrap_or_default(), "the inbox of {owner:?}");
    }
    assert!(kept.is_empty(), "unread messages of those who are not in memory: {kept:?}");
}

fn lives_under_the_living(world: &World, no: TaskNo, row: &TaskRow) {
    if !living(row) {
        return;
    }
    assert!(world.tree.get(no).is_some(), "{no:?} lives and is not in memory");
    if let Owner::Task(owner) = row.owner {
        let owner = world.folded.get(owner).expect("an owner exists");
        assert!(living(owner), "{no:?} lives below an ended task");
        let linked = world.tree.children(row.owner).any(|child| child == no);
        assert!(linked, "{no:?} is not among its owner's children");
    }
}

fn is_performed_only_if_started(world: &World, no: TaskNo, row: &TaskRow) {
    if matches!(row.state, TaskState::Running | TaskState::Stopping(_)) {
        let started = world.ledger.was_started(no, row.attempt);
        assert!(started, "{no:?} runs and was not started");
    }
}

fn queues_only_where_it_is_full(world: &World, no: TaskNo, row: &TaskRow) {
    let TaskState::Queued(queued) = &row.state else { return };
    let QueueReason::RunningLimit(holder) = queued.reason else { return };
    let above = world.naive().limit_chain(limit_holder(row));
    assert!(above.contains(&holder), "{no:?} queues at {holder:?}, which is not above it");
    let full = above.into_iter().any(|holder| world.naive().is_full(holder));
    assert!(full, "{no:?} queues though nothing above it is full");
}

fn has_no_answer_outstanding(world: &World, no: TaskNo, row: &TaskRow) {
    if matches!(row.state, TaskState::Waiting) {
        assert!(!row.parked_calls.is_empty(), "{no:?} waits for nothing");
        assert_eq!(row.unacked, None, "{no:?} rests and has not reacted to an answer");
    }
    if row.unacked.is_some() {
        // It is told one thing at a time, and has not reacted to the last.
        return;
    }
    for call in &row.parked_calls {
        assert!(!world.naive().holds(no, &call.condition), "{no:?} was not told of {call:?}");
    }
}

/// Once no stop is on its way, nothing below a stopped task is still at it.
fn was_reached_by_stops(world: &World, no: TaskNo, row: &TaskRow) {
    let closing = world.tree.row().state != SessionState::Open;
    let stopped_above = world.naive().chain(row.owner).into_iter().any(|holder| match holder {
        Owner::Session => closing,
        Owner::Task(holder) => {
            world.folded.get(holder).is_some_and(|row| living(row) && being_stopped(row))
        }
    });
    if living(row) && stopped_above {
        assert!(being_stopped(row), "{no:?} is {} below a stop", row.state.label());
    }
}

fn names_are_unique(world: &World) {
    let mut taken = BTreeSet::new();
    for (no, row) in world.folded.rows().filter(|(_, row)| living(row)) {
        if let Some(name) = &row.name {
            let new = taken.insert((row.owner, name.as_str().to_lowercase()));
            assert!(new, "{no:?} bears a name twice given: {name}");
        }
    }
}

/// Everything that a task spent is on the account of each task under whose limits it was spawned, also
/// of those that have ended since, and on no other.
fn usage_adds_up(world: &World) {
    let mut expected: BTreeMap<TaskNo, Usage> = BTreeMap::new();
    let mut whole = Usage::NONE;
    for (no, spent) in &world.ledger.spent {
        whole = whole.plus(*spent);
        let mut here = Some(*no);
        while let Some(no) = here {
            let account = expected.entry(no).or_default();
            *account = account.plus(*spent);
            here = world.ledger.spawners.get(&no).copied();
        }
    }
    assert_eq!(world.folded.row().usage, whole);
    for (no, row) in world.folded.rows() {
        assert_eq!(row.usage(), expected.remove(&no).unwrap_or_default(), "usage of {no:?}");
    }
}

/// A living task has all in memory that its limits are counted at.
fn has_its_holders_in_memory(world: &World, no: TaskNo, row: &TaskRow) {
    if living(row) || row.holds_slot() {
        let holders = world.naive().limit_chain(Owner::Task(no));
        let missing = holders.into_iter().filter_map(Owner::task);
        let missing: Vec<_> = missing.filter(|no| world.tree.get(*no).is_none()).collect();
        assert!(missing.is_empty(), "{no:?} is limited by {missing:?}, which left memory");
    }
}

/// Nothing goes on past a deadline that it inherited.
fn ends_at_its_inherited_deadline(world: &World, no: TaskNo, row: &TaskRow) {
    let over = row.inherited_deadline().is_some_and(|deadline| deadline.at <= world.now);
    let goes_on =
        matches!(row.state, TaskState::Queued(_) | TaskState::Running | TaskState::Waiting);
    assert!(!(over && goes_on), "{no:?} is {} past its deadline", row.state.label());
}
