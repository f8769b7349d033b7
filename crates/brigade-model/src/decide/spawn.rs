//! Spawns tasks. No other code creates them.

use std::sync::Arc;

use super::scope::fence;
use super::{CommandReply, Decision};
use crate::call::{CallCompletion, SpawnedTask};
use crate::command::{Caller, SpawnCommand};
use crate::entry_label::EntryLabel;
use crate::event::{Event, SpawnedEvent};
use crate::ids::{Owner, RunNo, TaskNo, Time};
use crate::limits::{DEPTH_MAX, LimitKind, Usage};
use crate::name::IdempotencyKey;
use crate::refusal::Refusal;
use crate::spec::TaskSpec;
use crate::stall::render_duration;
use crate::task::{QueueReason, TaskRow, TaskState};
use crate::task_tree::{KeyScope, SessionState, TaskTree, is_stopping_children};

pub(super) fn spawn(tree: &TaskTree, spawn: &SpawnCommand, now: Time) -> Result<Decision, Refusal> {
    fence(tree, &spawn.caller)?;
    let owner = spawn.caller.owner();
    let owner_run = owner.task().and_then(|no| tree.get(no)).map_or(RunNo::FIRST, |row| row.run);
    let spec = &spawn.spec;
    let existing = match &spec.key {
        Some(key) => find_existing(tree, KeyScope { owner, run: owner_run }, key, spec)?,
        None => None,
    };
    let (spawned, event) = match existing {
        Some(spawned) => (spawned, None),
        None => {
            spec.work.check()?;
            check_open(tree, owner)?;
            check_name(tree, owner, spec)?;
            check_part(owner, spec)?;
            if !spec.part_of_parent {
                check_counts(tree, owner)?;
                check_rate(tree, owner, now)?;
            }
            check_budget(tree, owner)?;
            check_priced(tree, owner, spec)?;
            check_deadline(tree, owner, spec, now)?;
            let no = next_task_no(tree)?;
            let kind = spec.work.kind();
            let queued = queue_reason(tree, owner, spec);
            let event = SpawnedEvent {
                no,
                owner,
                owner_run,
                call: spawn.call,
                client: match &spawn.caller {
                    Caller::Client(client) => Some(client.identity.clone()),
                    Caller::Operator | Caller::Task { .. } => None,
                },
                spec: spec.clone(),
                host: queued.is_none().then(|| tree.host_for(&spec.work)).flatten(),
                queued,
            };
            let spawned = SpawnedTask { no, run: RunNo::FIRST, kind, existing: false };
            (spawned, Some(Event::Spawned(Box::new(event))))
        }
    };
    let completion = CallCompletion::Spawned(spawned.clone());
    let decision = Decision {
        drafts: event.into_iter().map(Into::into).collect(),
        reply: CommandReply::Spawned(spawned),
    };
    Ok(decision.record_for(spawn.caller.task(), spawn.call, EntryLabel::Spawn, completion))
}

/// Returns the task that this key already identifies.
fn find_existing(
    tree: &TaskTree,
    scope: KeyScope,
    key: &IdempotencyKey,
    spec: &Arc<TaskSpec>,
) -> Result<Option<SpawnedTask>, Refusal> {
    let Some(mark) = tree.find_by_key(scope, key) else { return Ok(None) };
    let row = tree.get(mark.no);
    // After retention has removed the task, only the key is left to compare.
    if let Some(row) = row.filter(|row| *row.spec != **spec) {
        return Err(Refusal::conflict(format!(
            "the key {:?} stands for task {} with another request, which differs in: {}; use another key",
            key.as_str(),
            mark.no,
            row.spec.differences(spec).join(", ")
        )));
    }
    let run = row.map_or(RunNo::FIRST, |row| row.run);
    Ok(Some(SpawnedTask { no: mark.no, run, kind: spec.work.kind(), existing: true }))
}

/// Refuses a spawn in a subtree that is being stopped, and under an owner whose own work is over.
/// Awaited children of such an owner may still spawn.
pub(super) fn check_open(tree: &TaskTree, owner: Owner) -> Result<(), Refusal> {
    for holder in tree.owner_chain(owner) {
        match holder {
            Owner::Session if tree.row().state != SessionState::Open => {
                return Err(Refusal::ended(format!("the session {} is closed", tree.row().name)));
            }
            Owner::Session => {}
            Owner::Task(no) => {
                let is_closed = |row: &&TaskRow| {
                    is_stopping_children(row) || holder == owner && row.is_ending()
                };
                if let Some(row) = tree.get(no).filter(is_closed) {
                    return Err(Refusal::ended(format!(
                        "{} {}; nothing new starts under it",
                        row.address(no),
                        row.state.render_phrase()
                    )));
                }
            }
        }
    }
    Ok(())
}

fn check_name(tree: &TaskTree, owner: Owner, spec: &TaskSpec) -> Result<(), Refusal> {
    let Some(name) = &spec.name else { return Ok(()) };
    match tree.find_alive_by_name(owner, name).and_then(|no| Some((no, tree.get(no)?))) {
        Some((no, row)) => Err(Refusal::conflict(format!(
            "the name {:?} is taken by {}, which {}; choose another",
            name.as_str(),
            row.address(no),
            row.state.render_phrase()
        ))),
        None => Ok(()),
    }
}

/// Refuses one more alive child, spawned or resumed.
pub(super) fn check_width(tree: &TaskTree, owner: Owner) -> Result<(), Refusal> {
    let children = tree.links(owner).map_or(0, |node| node.alive_children);
    let full = tree.owner_chain(owner).find(|&holder| {
        let width = tree.limits(holder).and_then(|limits| limits.width);
        width.is_some_and(|width| children >= width)
    });
    match full {
        Some(holder) => Err(limit_refusal(tree, holder, LimitKind::Width, u64::from(children))),
        None => Ok(()),
    }
}

/// Refuses a model without a price under a money budget of any holder, because the budget could not
/// stop it.
pub(super) fn check_priced(tree: &TaskTree, holder: Owner, spec: &TaskSpec) -> Result<(), Refusal> {
    let Some(model) = spec.work.unpriced_model() else { return Ok(()) };
    let has_money_budget =
        |holder: &Owner| tree.limits(*holder).is_some_and(|limits| limits.money.is_some());
    match tree.limit_holders(holder).find(has_money_budget) {
        Some(holder) => Err(Refusal::invalid(format!(
            "{} has a budget of money, and the price of {model} is not known; give it",
            render_holder(tree, holder)
        ))),
        None => Ok(()),
    }
}

/// Refuses a part of nothing, and a part that would outlive its parent.
fn check_part(owner: Owner, spec: &TaskSpec) -> Result<(), Refusal> {
    match owner {
        _ if !spec.part_of_parent => Ok(()),
        Owner::Session => Err(Refusal::invalid("a task at top level is no part of a parent")),
        Owner::Task(_) if spec.keep => {
            Err(Refusal::invalid("a part of its parent ends with its parent, and cannot be kept"))
        }
        Owner::Task(_) => Ok(()),
    }
}

fn check_counts(tree: &TaskTree, owner: Owner) -> Result<(), Refusal> {
    check_width(tree, owner)?;
    check_depth(tree, owner)?;
    check_total(tree, owner)
}

/// Refuses a spawn that is too deep. A kept task counts as deep as it was spawned, so that no chain
/// of kept tasks exceeds the limit.
fn check_depth(tree: &TaskTree, owner: Owner) -> Result<(), Refusal> {
    let mut distance: u16 = 0;
    for holder in tree.limit_holders(owner) {
        distance += 1;
        let depth = tree.limits(holder).and_then(|limits| limits.depth);
        if depth.is_some_and(|depth| distance > depth) {
            return Err(limit_refusal(tree, holder, LimitKind::Depth, u64::from(distance - 1)));
        }
    }
    if distance > DEPTH_MAX {
        return Err(limit_refusal(tree, Owner::Session, LimitKind::Depth, u64::from(DEPTH_MAX)));
    }
    Ok(())
}

fn check_total(tree: &TaskTree, owner: Owner) -> Result<(), Refusal> {
    let mut top: Option<TaskNo> = None;
    for holder in tree.total_holders(owner) {
        let counted = holder.task().or(top);
        let max = tree.limits(holder).and_then(|limits| limits.total);
        let total = counted.and_then(|no| tree.extras(no)).map_or(0, |extra| extra.total_spawned);
        if counted.is_some() && max.is_some_and(|max| total >= max) {
            return Err(limit_refusal(tree, holder, LimitKind::Total, u64::from(total)));
        }
        top = counted;
    }
    Ok(())
}

/// Refuses to start anything under an exhausted budget.
pub(super) fn check_budget(tree: &TaskTree, holder: Owner) -> Result<(), Refusal> {
    for holder in tree.limit_holders(holder) {
        let Some(limits) = tree.limits(holder) else { continue };
        if let Some((kind, limit)) = exhausted_budget(limits, tree.committed_usage(holder)) {
            return Err(limit_refusal(tree, holder, kind, limit));
        }
    }
    Ok(())
}

/// Refuses a spawn that exceeds a rate, and says when to try again.
fn check_rate(tree: &TaskTree, owner: Owner, now: Time) -> Result<(), Refusal> {
    for holder in tree.limit_holders(owner) {
        let Some(rate) = tree.limits(holder).and_then(|limits| limits.spawn_rate) else { continue };
        let meter = match holder {
            Owner::Session => tree.row().spawn_meter,
            Owner::Task(no) => tree.extras(no).map(|extra| extra.spawn_meter).unwrap_or_default(),
        };
        if let Some(wait) = rate.wait_time(meter, now) {
            let holder = render_holder(tree, holder);
            let advice = match rate.count {
                0 => "no task may be started under it".to_owned(),
                _ => format!("try again in {}", render_duration(wait)),
            };
            let text = format!("the spawn rate of {holder} is reached: {rate}; {advice}");
            return Err(Refusal::limit(text));
        }
    }
    Ok(())
}

/// Refuses agents and jobs under a kept process after the deadline under which it was kept.
fn check_deadline(
    tree: &TaskTree,
    owner: Owner,
    spec: &TaskSpec,
    now: Time,
) -> Result<(), Refusal> {
    match tree.inherited_start_deadline(owner, spec).filter(|deadline| deadline.at <= now) {
        Some(deadline) => {
            let holder = render_holder(tree, Owner::Task(deadline.holder));
            let kind = spec.work.kind();
            let text = format!("the deadline of {holder} has passed; no {kind} starts under it");
            Err(Refusal::limit(text))
        }
        None => Ok(()),
    }
}

fn exhausted_budget(limits: &crate::limits::Limits, used: Usage) -> Option<(LimitKind, u64)> {
    let tokens = limits.tokens.filter(|limit| used.tokens >= *limit);
    let money = limits.money.filter(|limit| used.money >= *limit);
    tokens
        .map(|limit| (LimitKind::Tokens, limit))
        .or(money.map(|limit| (LimitKind::Money, limit.0)))
}

fn limit_refusal(tree: &TaskTree, holder: Owner, kind: LimitKind, at: u64) -> Refusal {
    let name = render_holder(tree, holder);
    Refusal::limit(match kind {
        LimitKind::Depth => {
            format!("the depth limit of {name} is reached: {at} levels; nothing may nest deeper")
        }
        LimitKind::Width => format!("the width limit of {name} is reached: {at} alive children"),
        LimitKind::Total => format!("the total limit of {name} is reached: {at} tasks"),
        LimitKind::Inbox => format!("the inbox of {name} is full: {at} unread messages"),
        LimitKind::Tokens => format!("the token budget of {name} is spent: {at} tokens"),
        LimitKind::Money => {
            format!("the money budget of {name} is spent: {at} millionths of a dollar")
        }
    })
}

fn render_holder(tree: &TaskTree, holder: Owner) -> String {
    match holder {
        Owner::Session => format!("the session {}", tree.row().name),
        Owner::Task(no) => tree.get(no).map_or(format!("task {no}"), |row| row.address(no)),
    }
}

fn next_task_no(tree: &TaskTree) -> Result<TaskNo, Refusal> {
    match tree.row().last_task {
        None => Ok(TaskNo::FIRST),
        Some(last) => {
            last.next().ok_or_else(|| Refusal::limit("the session has used all its numbers"))
        }
    }
}

/// Returns the reason why a task under `from` cannot start now, if there is one. A part of its parent
/// needs no slot.
fn queue_reason(tree: &TaskTree, from: Owner, spec: &TaskSpec) -> Option<QueueReason> {
    if spec.part_of_parent { None } else { tree.queue_reason(from) }
}

/// Returns the event that starts the next attempt of a task.
pub(crate) fn start_event(tree: &TaskTree, no: TaskNo, row: &TaskRow) -> Event {
    let host = tree.host_for(&row.spec.work);
    Event::Started { no, attempt: row.attempt.next(), host }
}

/// Returns the event that starts a task, or queues it if no slot is free.
pub(crate) fn start_or_queue(tree: &TaskTree, no: TaskNo, row: &TaskRow) -> Event {
    match queue_reason(tree, row.limit_holder(), &row.spec) {
        None => start_event(tree, no, row),
        Some(reason) => Event::Queued { no, reason },
    }
}

/// Returns whether a task is in the queue of this holder.
pub(crate) fn is_queued_at(row: &TaskRow, holder: Owner) -> bool {
    matches!(&row.state, TaskState::Queued(queued) if queued.reason == QueueReason::RunningLimit(holder))
}
