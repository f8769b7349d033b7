//! Parking: a call that waits, and what answers it.

use std::collections::BTreeSet;

use super::collect::{collected, endings_of};
use super::{Decision, Draft, Reply, approve, news};
use crate::call::{Answer, Asked, Condition, OpenCall, TasksCondition, WaitMode};
use crate::command::AfterPark;
use crate::event::Event;
use crate::ids::{CallIndex, MessageNo, Millis, Owner, RunNo, TaskNo, Time};
use crate::message::{Message, Purpose, Sender};
use crate::refusal::Refusal;
use crate::task::{State, TaskRow};
use crate::tree::Tree;

pub(super) fn park(
    tree: &Tree,
    (no, row): (TaskNo, &TaskRow),
    calls: &[(CallIndex, Asked)],
    (heard, then): (u32, AfterPark),
    now: Time,
) -> Result<Decision, Refusal> {
    if !matches!(row.state, State::Running) {
        return Err(Refusal::ended(format!("{} {}", row.address(no), row.state.phrase())));
    }
    let mut drafts: Vec<Draft> = Vec::with_capacity(calls.len() + 2);
    let mut open = row.calls.clone();
    if row.told.is_some_and(|told| heard > told) {
        drafts.push(Event::Heard { no }.into());
    }
    // An answer that is on its way to the work counts as one that it has now.
    let on_its_way = row.told.is_some_and(|told| heard <= told);
    for (index, asked) in calls {
        if row.open_call(*index).is_some() {
            continue;
        }
        let on = condition(tree, (no, row), asked, now)?;
        if let Condition::Answer { question } = &on {
            super::message::check_room(tree, row.owner)?;
            let number = tree.row().last_message.0 + 1 + questions(&drafts);
            let message = Message {
                no: MessageNo(number),
                to: row.owner,
                from: Sender::Child(no),
                body: question.clone(),
                sent: now,
                purpose: Purpose::Question(*index),
                interrupt: false,
                last: false,
                reply_to: None,
            };
            drafts.push(Event::MessageSent(message.into()).into());
        }
        let call = OpenCall { index: *index, on };
        open.push(call.clone());
        drafts.push(Event::Parked { no, call: Box::new(call) }.into());
    }
    // The clock may have answered an open call already, though its tick is still to come.
    let answered_now = on_its_way || open.iter().any(|call| satisfied(tree, no, call, now));
    let suspended = match then {
        AfterPark::GoOn => false,
        // Fewer open calls than the work believes: an answer is on its way to it. With none at
        // all there is nothing that would ever wake it.
        AfterPark::Suspend { open: known } => !answered_now && known > 0 && known == open.len(),
    };
    if suspended {
        drafts.push(Event::Suspended { no, partial: None }.into());
    }
    Ok(Decision { drafts, reply: Reply::Parked { suspended } })
}

fn questions(drafts: &[Draft]) -> u64 {
    drafts.iter().filter(|draft| matches!(draft.event, Event::MessageSent(_))).count() as u64
}

fn condition(
    tree: &Tree,
    (no, row): (TaskNo, &TaskRow),
    asked: &Asked,
    now: Time,
) -> Result<Condition, Refusal> {
    let until = |patience: &Option<Millis>| patience.map(|span| now.after(span));
    Ok(match asked {
        Asked::Tasks { tasks, mode, patience, interruptible } => {
            let tasks = if tasks.is_empty() {
                uncollected_children(tree, no, row.run)
            } else {
                for &task in tasks {
                    check_wait(tree, (no, row), task)?;
                }
                tasks.iter().copied().collect()
            };
            Condition::Tasks(TasksCondition {
                tasks: tasks.into_iter().collect(),
                mode: *mode,
                until: until(patience),
                interruptible: *interruptible,
            })
        }
        Asked::Message { patience } => {
            news::asks_for_messages(no, row)?;
            Condition::Message { until: until(patience) }
        }
        Asked::News => {
            news::asks_for_messages(no, row)?;
            Condition::News
        }
        Asked::Sleep { span } => Condition::Timer { until: now.after(*span) },
        Asked::Question { question } => Condition::Answer { question: question.clone() },
        Asked::Approval { request } => Condition::Approval { request: request.clone(), since: now },
        Asked::ClientTool { request } => Condition::ClientTool { request: request.clone() },
    })
}

/// What a wait for everything covers. Results that an earlier run left behind are to be named: they
/// leave memory with it, so that they cannot be found here reliably.
fn uncollected_children(tree: &Tree, no: TaskNo, run: RunNo) -> BTreeSet<TaskNo> {
    let wanted = |no: &TaskNo| {
        tree.get(*no)
            .is_some_and(|row| row.is_living() || !row.is_collected() && row.asked_by() == run)
    };
    tree.children(Owner::Task(no)).filter(wanted).collect()
}

/// A task waits for its own children only: waiting for itself or for somebody above would never end.
fn check_wait(tree: &Tree, (no, row): (TaskNo, &TaskRow), task: TaskNo) -> Result<(), Refusal> {
    let me = row.address(no);
    if task == no {
        return Err(Refusal::invalid(format!("{me} cannot wait for itself")));
    }
    let Some(target) = tree.get(task) else {
        return Err(super::scope::no_such_task(tree, task));
    };
    if target.owner == Owner::Task(no) {
        return Ok(());
    }
    let above: Vec<String> = tree
        .upwards(row.owner)
        .filter_map(Owner::task)
        .filter_map(|no| Some(tree.get(no)?.address(no)))
        .collect();
    let address = target.address(task);
    if above.contains(&address) {
        let path = above.iter().rev().cloned().collect::<Vec<_>>().join(" > ");
        return Err(Refusal::invalid(format!(
            "a wait cycle: {me} is below {address} ({path} > {me}), which ends only after it"
        )));
    }
    Err(Refusal::forbidden(format!("{address} is not a child of {me}")))
}

/// Whether the condition of a call holds.
pub(crate) fn satisfied(tree: &Tree, no: TaskNo, call: &OpenCall, now: Time) -> bool {
    let on = &call.on;
    if on.until().is_some_and(|until| until <= now) {
        return true;
    }
    match on {
        Condition::Tasks(wait) => {
            if wait.interruptible && tree.inbox(Owner::Task(no)).next().is_some() {
                return true;
            }
            all_or_any(tree, (no, call.index), wait)
        }
        Condition::Message { .. } => tree.inbox(Owner::Task(no)).next().is_some(),
        Condition::News => tree.get(no).is_some_and(|row| news::any(tree, no, row)),
        Condition::Approval { request, .. } => approve::is_settled(tree, no, request),
        Condition::Timer { .. } | Condition::Answer { .. } | Condition::ClientTool { .. } => false,
    }
}

/// Whether the awaited tasks have ended: from the count that is kept, once the call is parked.
fn all_or_any(tree: &Tree, (no, index): (TaskNo, CallIndex), wait: &TasksCondition) -> bool {
    let waits = tree.node(Owner::Task(no)).map(|node| &node.waits);
    let kept = waits.and_then(|waits| waits.iter().find(|counted| counted.index == index));
    let lives = |no: &&TaskNo| tree.get(**no).is_some_and(TaskRow::is_living);
    let left = match kept {
        Some(kept) => kept.left as usize,
        None => wait.tasks.iter().filter(lives).count(),
    };
    match wait.mode {
        WaitMode::Any => wait.tasks.is_empty() || left < wait.tasks.len(),
        WaitMode::All => left == 0,
    }
}

/// The events that answer a satisfied call: results and messages leave with the answer.
pub(crate) fn answer_to(tree: &Tree, no: TaskNo, call: &OpenCall) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    let mine = Owner::Task(no);
    let answer = match &call.on {
        Condition::Approval { request, .. } => return approve::settled(tree, no, call, request),
        Condition::Tasks(wait) => {
            let ended = all_or_any(tree, (no, call.index), wait);
            if ended {
                let rows = wait.tasks.iter().filter_map(|no| Some((*no, tree.get(*no)?)));
                let endings: Vec<_> = rows.flat_map(|(no, row)| endings_of(no, row)).collect();
                drafts.extend(collected(&endings).map(Draft::from));
                Answer::Endings(endings)
            } else if wait.interruptible && tree.unread(mine) > 0 {
                Answer::News
            } else {
                Answer::Elapsed
            }
        }
        Condition::Message { .. } => match tree.inbox(mine).next() {
            Some(message) => {
                drafts.push(Event::MessageRead { to: mine, message: message.no }.into());
                Answer::Message(message.clone())
            }
            None => Answer::Elapsed,
        },
        Condition::News => match tree.get(no) {
            Some(row) => {
                let (taken, answer) = news::take(tree, no, row);
                drafts.extend(taken);
                answer
            }
            None => Answer::Elapsed,
        },
        Condition::Timer { .. } | Condition::Answer { .. } | Condition::ClientTool { .. } => {
            Answer::Elapsed
        }
    };
    drafts.push(Draft::answered(no, call.index, call.on.label(), answer));
    drafts
}
