//! Spawning: the one door to new tasks.

use std::sync::Arc;

use super::scope::fence;
use super::{Decision, Reply};
use crate::call::{Answer, Spawned};
use crate::command::{Caller, Spawn};
use crate::event::{Event, SpawnedEvent};
use crate::ids::{Owner, RunNo, TaskNo, Time};
use crate::limits::{DEPTH_MAX, LimitKind, Usage};
use crate::name::Key;
use crate::refusal::Refusal;
use crate::spec::Spec;
use crate::stall::spoken;
use crate::task::{QueuedWhy, State, TaskRow};
use crate::tree::{SessionState, Tree, sweeps_children};

pub(super) fn spawn(tree: &Tree, spawn: &Spawn, now: Time) -> Result<Decision, Refusal> {
    fence(tree, &spawn.caller)?;
    let owner = spawn.caller.owner();
    let owner_run = owner.task().and_then(|no| tree.get(no)).map_or(RunNo::FIRST, |row| row.run);
    let spec = &spawn.spec;
    let existing = match &spec.key {
        Some(key) => existing(tree, (owner, owner_run), key, spec)?,
        None => None,
    };
    let (spawned, event) = match existing {
        Some(spawned) => (spawned, None),
        None => {
            spec.work.check()?;
            check_open(tree, owner)?;
            check_name(tree, owner, spec)?;
            check_limits(tree, owner)?;
            check_priced(tree, owner, spec)?;
            check_rate(tree, owner, now)?;
            check_deadline(tree, owner, spec, now)?;
            let no = next_no(tree)?;
            let kind = spec.work.kind();
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
                queued: tree.full_above(owner).map(QueuedWhy::Full),
            };
            let spawned = Spawned { no, run: RunNo::FIRST, kind, existing: false };
            (spawned, Some(Event::Spawned(Box::new(event))))
        }
    };
    let answer = Answer::Spawned(spawned.clone());
    let decision = Decision {
        drafts: event.into_iter().map(Into::into).collect(),
        reply: Reply::Spawned(spawned),
    };
    Ok(decision.recorded_for(spawn.caller.task(), spawn.call, "spawn", answer))
}

/// The task that this key already stands for.
fn existing(
    tree: &Tree,
    (owner, run): (Owner, RunNo),
    key: &Key,
    spec: &Arc<Spec>,
) -> Result<Option<Spawned>, Refusal> {
    let Some(mark) = tree.keyed(owner, run, key) else { return Ok(None) };
    let row = tree.get(mark.no);
    // Of a task that retention has removed only the key is left to compare.
    if let Some(row) = row.filter(|row| *row.spec != **spec) {
        return Err(Refusal::conflict(format!(
            "the key {:?} stands for task {} with another request, which differs in: {}; use another key",
            key.as_str(),
            mark.no,
            row.spec.differences(spec).join(", ")
        )));
    }
    let run = row.map_or(RunNo::FIRST, |row| row.run);
    Ok(Some(Spawned { no: mark.no, run, kind: spec.work.kind(), existing: true }))
}

/// Refuses below anything that is being stopped, and under an owner whose own work is over. Awaited
/// children of such an owner still delegate.
pub(super) fn check_open(tree: &Tree, owner: Owner) -> Result<(), Refusal> {
    for holder in tree.upwards(owner) {
        match holder {
            Owner::Session if tree.row().state != SessionState::Open => {
                return Err(Refusal::ended(format!("the session {} is closed", tree.row().name)));
            }
            Owner::Session => {}
            Owner::Task(no) => {
                let closed =
                    |row: &&TaskRow| sweeps_children(row) || holder == owner && row.is_ending();
                let ending = tree.get(no).filter(closed);
                if let Some(row) = ending {
                    return Err(Refusal::ended(format!(
                        "{} {}; nothing new starts below it",
                        row.address(no),
                        row.state.phrase()
                    )));
                }
            }
        }
    }
    Ok(())
}

fn check_name(tree: &Tree, owner: Owner, spec: &Spec) -> Result<(), Refusal> {
    let Some(name) = &spec.name else { return Ok(()) };
    match tree.living_named(owner, name).and_then(|no| Some((no, tree.get(no)?))) {
        Some((no, row)) => Err(Refusal::conflict(format!(
            "the name {:?} is taken by {}, which {}; choose another",
            name.as_str(),
            row.address(no),
            row.state.phrase()
        ))),
        None => Ok(()),
    }
}

/// Refuses one more living child, new or resumed.
pub(super) fn check_width(tree: &Tree, owner: Owner) -> Result<(), Refusal> {
    let children = tree.node(owner).map_or(0, |node| node.children);
    let full = tree.upwards(owner).find(|&holder| {
        let width = tree.limits(holder).and_then(|limits| limits.width);
        width.is_some_and(|width| children >= width)
    });
    match full {
        Some(holder) => Err(reached(tree, holder, LimitKind::Width, u64::from(children))),
        None => Ok(()),
    }
}

/// A budget of money holds nobody back whose price is not known, wherever above it is set.
pub(super) fn check_priced(tree: &Tree, holder: Owner, spec: &Spec) -> Result<(), Refusal> {
    let Some(model) = spec.work.unpriced() else { return Ok(()) };
    let counts = |holder: &Owner| tree.limits(*holder).is_some_and(|limits| limits.money.is_some());
    match tree.limit_holders(holder).find(counts) {
        Some(holder) => Err(Refusal::invalid(format!(
            "{} has a budget of money, and what {model} costs is not known; give its price",
            called(tree, holder)
        ))),
        None => Ok(()),
    }
}

fn check_limits(tree: &Tree, owner: Owner) -> Result<(), Refusal> {
    check_width(tree, owner)?;
    check_depth(tree, owner)?;
    check_total(tree, owner)?;
    check_spent(tree, owner)
}

/// A kept task is as deep as it was spawned, so that no chain of them gets deeper than its limits.
fn check_depth(tree: &Tree, owner: Owner) -> Result<(), Refusal> {
    let mut distance: u16 = 0;
    for holder in tree.limit_holders(owner) {
        distance += 1;
        let depth = tree.limits(holder).and_then(|limits| limits.depth);
        if depth.is_some_and(|depth| distance > depth) {
            return Err(reached(tree, holder, LimitKind::Depth, u64::from(distance - 1)));
        }
    }
    if distance > DEPTH_MAX {
        return Err(reached(tree, Owner::Session, LimitKind::Depth, u64::from(DEPTH_MAX)));
    }
    Ok(())
}

fn check_total(tree: &Tree, owner: Owner) -> Result<(), Refusal> {
    let mut top: Option<TaskNo> = None;
    for holder in tree.total_holders(owner) {
        let counted = holder.task().or(top);
        let most = tree.limits(holder).and_then(|limits| limits.total);
        let total = counted.and_then(|no| tree.extra(no)).map_or(0, |extra| extra.total);
        if counted.is_some() && most.is_some_and(|most| total >= most) {
            return Err(reached(tree, holder, LimitKind::Total, u64::from(total)));
        }
        top = counted;
    }
    Ok(())
}

/// Refuses to begin anything under a budget of which nothing is left.
pub(super) fn check_spent(tree: &Tree, holder: Owner) -> Result<(), Refusal> {
    for holder in tree.limit_holders(holder) {
        let Some(limits) = tree.limits(holder) else { continue };
        if let Some((kind, most)) = spent_up(limits, tree.committed_usage(holder)) {
            return Err(reached(tree, holder, kind, most));
        }
    }
    Ok(())
}

/// Refuses what comes too fast, and says when it would not.
fn check_rate(tree: &Tree, owner: Owner, now: Time) -> Result<(), Refusal> {
    for holder in tree.limit_holders(owner) {
        let Some(rate) = tree.limits(holder).and_then(|limits| limits.spawn_rate) else { continue };
        let paid = match holder {
            Owner::Session => tree.row().paid,
            Owner::Task(no) => tree.extra(no).map(|extra| extra.paid).unwrap_or_default(),
        };
        if let Some(wait) = rate.wait(paid, now) {
            let whose = called(tree, holder);
            let when = match rate.count {
                0 => "nothing may be started below it".to_owned(),
                _ => format!("try again in {}", spoken(wait)),
            };
            let text = format!("the spawn rate of {whose} is reached: {rate}; {when}");
            return Err(Refusal::limit(text));
        }
    }
    Ok(())
}

/// Refuses agents and jobs below a kept process after the deadline under which it was kept.
fn check_deadline(tree: &Tree, owner: Owner, spec: &Spec, now: Time) -> Result<(), Refusal> {
    match tree.inherited_at_start(owner, spec).filter(|deadline| deadline.at <= now) {
        Some(deadline) => {
            let whose = called(tree, Owner::Task(deadline.from));
            let kind = spec.work.kind();
            let text = format!("the deadline of {whose} has passed; no {kind} starts below it");
            Err(Refusal::limit(text))
        }
        None => Ok(()),
    }
}

fn spent_up(limits: &crate::limits::Limits, used: Usage) -> Option<(LimitKind, u64)> {
    let tokens = limits.tokens.filter(|most| used.tokens >= *most);
    let money = limits.money.filter(|most| used.money >= *most);
    tokens.map(|most| (LimitKind::Tokens, most)).or(money.map(|most| (LimitKind::Money, most.0)))
}

fn reached(tree: &Tree, holder: Owner, kind: LimitKind, at: u64) -> Refusal {
    let whose = called(tree, holder);
    Refusal::limit(match kind {
        LimitKind::Depth => {
            format!("the depth limit of {whose} is reached: {at} levels; nothing may nest deeper")
        }
        LimitKind::Width => format!("the width limit of {whose} is reached: {at} living children"),
        LimitKind::Total => format!("the total limit of {whose} is reached: {at} tasks"),
        LimitKind::Inbox => format!("the inbox of {whose} is full: {at} unread messages"),
        LimitKind::Tokens => format!("the token budget of {whose} is spent: {at} tokens"),
        LimitKind::Money => {
            format!("the money budget of {whose} is spent: {at} millionths of a dollar")
        }
    })
}

fn called(tree: &Tree, holder: Owner) -> String {
    match holder {
        Owner::Session => format!("the session {}", tree.row().name),
        Owner::Task(no) => tree.get(no).map_or(format!("task {no}"), |row| row.address(no)),
    }
}

fn next_no(tree: &Tree) -> Result<TaskNo, Refusal> {
    match tree.row().last_task {
        None => Ok(TaskNo::FIRST),
        Some(last) => {
            last.next().ok_or_else(|| Refusal::limit("the tree has used all its numbers"))
        }
    }
}

/// The event by which a task that could run does so, or queues.
pub(crate) fn start_or_queue(tree: &Tree, no: TaskNo, row: &TaskRow) -> Event {
    match tree.full_above(row.limit_holder()) {
        None => Event::Started { no, attempt: row.attempt.next() },
        Some(holder) => Event::Queued { no, why: QueuedWhy::Full(holder) },
    }
}

/// Whether a task waits in a queue for its turn.
pub(crate) fn is_queued_at(row: &TaskRow, holder: Owner) -> bool {
    matches!(&row.state, State::Queued(queued) if queued.why == QueuedWhy::Full(holder))
}
