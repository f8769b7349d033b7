//! Invariants that hold after every command.

use std::collections::{BTreeMap, BTreeSet};

use brigade_model::command::Command;
use brigade_model::decide::CommandReply;
use brigade_model::ids::{MessageNo, Owner, TaskNo};
use brigade_model::limits::Usage;
use brigade_model::message::Receipt;
use brigade_model::task::{QueueReason, TaskRow, TaskState};
use brigade_model::task_tree::SessionState;

use crate::naive::Expected;
use crate::rows::{being_stopped, is_alive, limit_holder, queues_for_runtime};
use crate::world::World;

/// Compares the real reply with the predicted one.
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
        (Expected::SentBefore(no), CommandReply::Sent(numbers)) => {
            assert_eq!(numbers.as_slice(), [*no], "{command:?}");
            return;
        }
        (_, CommandReply::Results(results)) => {
            let summary = |r: &brigade_model::call::RunResult| (r.no, r.run, r.collected_before);
            let set: BTreeSet<_> = results.iter().map(summary).collect();
            assert_eq!(set.len(), results.len(), "a result was returned twice");
            Expected::Results(set)
        }
        (_, CommandReply::Pending(pending)) => Expected::Pending(pending.iter().copied().collect()),
        (_, other) => panic!("{command:?}: expected {expected:?}, got {other:?}"),
    };
    assert_eq!(*expected, got, "{command:?}");
}

pub(crate) fn all(world: &World, command: &Command) {
    stored_folded_and_live_agree(world);
    for (no, row) in world.folded.rows() {
        has_an_alive_owner(world, no, row);
        is_performed_only_if_started(world, no, row);
        is_ready_as_reported(world, no, row);
        queues_only_where_it_is_full(world, no, row);
        has_no_pending_completion(world, no, row);
        has_its_holders_in_memory(world, no, row);
        if !world.tree.has_sweep() {
            was_reached_by_stops(world, no, row);
        }
    }
    names_are_unique(world);
    usage_adds_up(world);
    if world.tree.row().state == SessionState::Closed {
        assert_eq!(world.tree.alive_count(), 0, "a closed session has alive tasks");
    }
    if matches!(command, Command::Tick) {
        for (no, row) in world.folded.rows() {
            ends_at_its_inherited_deadline(world, no, row);
        }
        let due = world.tree.next_due().filter(|due| *due <= world.now);
        assert_eq!(due, None, "a timer is due after the tick");
    }
}

/// Compares the three trees. It also shows that a refusal leaves the tree as stored.
pub(crate) fn stored_folded_and_live_agree(world: &World) {
    let tree = &world.tree;
    let folded = &world.folded;
    let store = &world.store;
    assert_eq!(tree.row(), folded.row());
    assert!(folded.rows().eq(store.tasks.iter().map(|(no, row)| (*no, row))), "rows differ");
    for (no, row) in tree.rows() {
        assert_eq!(Some(row), store.tasks.get(&no), "{no:?} in memory is not as stored");
        let expected = folded.alive_descendants(no);
        assert_eq!(tree.alive_descendants(no), expected, "{no:?} has lost count of its tasks");
    }
    let alive_count = store.tasks.values().filter(|row| is_alive(row)).count();
    assert_eq!(tree.alive_count() as usize, alive_count);
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
    assert!(kept.is_empty(), "unread messages to tasks that are not in memory: {kept:?}");
}

fn has_an_alive_owner(world: &World, no: TaskNo, row: &TaskRow) {
    if !is_alive(row) {
        return;
    }
    assert!(world.tree.get(no).is_some(), "{no:?} is alive and not in memory");
    if let Owner::Task(owner) = row.owner {
        let owner = world.folded.get(owner).expect("an owner exists");
        assert!(is_alive(owner), "{no:?} is alive under an ended task");
        let linked = world.tree.children(row.owner).any(|child| child == no);
        assert!(linked, "{no:?} is not among its owner's children");
    }
}

fn is_performed_only_if_started(world: &World, no: TaskNo, row: &TaskRow) {
    let is_away = matches!(row.state, TaskState::Away(_));
    if is_away || matches!(row.state, TaskState::Running | TaskState::Stopping(_)) {
        let started = world.ledger.was_started(no, row.attempt);
        assert!(started, "{no:?} runs and was not started");
    }
    assert!(!is_away || row.host().is_some(), "{no:?} is away from no host");
}

/// Checks that a task is ready if its latest attempt reported that, and since that time.
fn is_ready_as_reported(world: &World, no: TaskNo, row: &TaskRow) {
    let expected = world.ledger.ready_at(no, row.attempt);
    assert_eq!(row.ready_at(), expected, "{no:?} is {}", row.state.label());
}

fn queues_only_where_it_is_full(world: &World, no: TaskNo, row: &TaskRow) {
    let TaskState::Queued(queued) = &row.state else { return };
    let QueueReason::RunningLimit(holder) = queued.reason else { return };
    let holders = world.naive().limit_chain(limit_holder(row));
    assert!(holders.contains(&holder), "{no:?} queues at {holder:?}, which does not limit it");
    let full = holders.into_iter().any(|holder| world.naive().is_full(holder));
    assert!(full, "{no:?} queues though no holder is full");
}

/// Checks the queue for the runtime: it is what the rows say, and empty if the runtime has no limit.
pub(crate) fn runtime_queue(world: &World, starts: Option<u32>) {
    let queued = world.folded.rows().filter(|(_, row)| queues_for_runtime(row)).count();
    assert_eq!(world.tree.runtime_queue_len(), queued);
    assert_eq!(world.folded.runtime_queue_len(), queued);
    assert!(starts.is_some() || queued == 0, "{queued} tasks queue for an unlimited runtime");
}

fn has_no_pending_completion(world: &World, no: TaskNo, row: &TaskRow) {
    if matches!(row.state, TaskState::Waiting) {
        assert!(!row.parked_calls.is_empty(), "{no:?} waits for nothing");
        assert_eq!(row.unacked, None, "{no:?} waits with an unacknowledged completion");
    }
    if row.unacked.is_some() {
        // It gets one completion at a time, and has not acknowledged the last.
        return;
    }
    for call in &row.parked_calls {
        assert!(
            !world.naive().is_condition_met(no, &call.condition),
            "{no:?} was not woken for {call:?}"
        );
    }
}

/// Checks that no descendant of a stopped task still runs, once no stop is on its way.
fn was_reached_by_stops(world: &World, no: TaskNo, row: &TaskRow) {
    let closing = world.tree.row().state != SessionState::Open;
    let stopped_above = world.naive().chain(row.owner).into_iter().any(|holder| match holder {
        Owner::Session => closing,
        Owner::Task(holder) => {
            world.folded.get(holder).is_some_and(|row| is_alive(row) && being_stopped(row))
        }
    });
    if is_alive(row) && stopped_above {
        assert!(being_stopped(row), "{no:?} is {} in a stopped subtree", row.state.label());
    }
}

fn names_are_unique(world: &World) {
    let mut taken = BTreeSet::new();
    for (no, row) in world.folded.rows().filter(|(_, row)| is_alive(row)) {
        if let Some(name) = &row.name {
            let new = taken.insert((row.owner, name.as_str().to_lowercase()));
            assert!(new, "{no:?} has a name that is taken: {name}");
        }
    }
}

/// Checks that the cost of a task is charged to each task under whose limits it was spawned, ended
/// ones included, and to no other.
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

/// Checks that all limit holders of an alive task are in memory.
fn has_its_holders_in_memory(world: &World, no: TaskNo, row: &TaskRow) {
    if is_alive(row) || row.holds_slot() {
        let holders = world.naive().limit_chain(Owner::Task(no));
        let missing = holders.into_iter().filter_map(Owner::task);
        let missing: Vec<_> = missing.filter(|no| world.tree.get(*no).is_none()).collect();
        assert!(missing.is_empty(), "{no:?} is limited by {missing:?}, which were evicted");
    }
}

/// Checks that no task continues past an inherited deadline.
fn ends_at_its_inherited_deadline(world: &World, no: TaskNo, row: &TaskRow) {
    let over = row.inherited_deadline().is_some_and(|deadline| deadline.at <= world.now);
    let continues =
        matches!(row.state, TaskState::Queued(_) | TaskState::Running | TaskState::Waiting);
    assert!(!(over && continues), "{no:?} is {} past its deadline", row.state.label());
}
