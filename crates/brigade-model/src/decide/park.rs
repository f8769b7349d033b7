//! Parking: a call that waits, and what answers it.

use std::collections::BTreeSet;

use super::collect::{collected_event, results_of};
use super::{CommandReply, Decision, Draft, approve, inbox};
use crate::call::{
    CallCompletion, Condition, ConditionRequest, ParkedCall, TasksCondition, WaitMode,
};
use crate::command::AfterPark;
use crate::event::Event;
use crate::ids::{CallIndex, MessageNo, Millis, Owner, RunNo, TaskNo, Time};
use crate::message::{Message, MessagePurpose, MessageSender};
use crate::refusal::Refusal;
use crate::task::{TaskRow, TaskState};
use crate::task_tree::TaskTree;

pub(super) fn park(
    tree: &TaskTree,
    (no, row): (TaskNo, &TaskRow),
    calls: &[(CallIndex, ConditionRequest)],
    (heard, then): (u32, AfterPark),
    now: Time,
) -> Result<Decision, Refusal> {
    if !matches!(row.state, TaskState::Running) {
        return Err(Refusal::ended(format!("{} {}", row.address(no), row.state.render_phrase())));
    }
    let mut drafts: Vec<Draft> = Vec::with_capacity(calls.len() + 2);
    let mut open = row.parked_calls.clone();
    if row.unacked.is_some_and(|told| heard > told) {
        drafts.push(Event::Acknowledged { no }.into());
    }
    // An answer that is on its way to the work counts as one that it has now.
    let on_its_way = row.unacked.is_some_and(|told| heard <= told);
    for (index, asked) in calls {
        if row.parked_call(*index).is_some() {
            continue;
        }
        let on = resolve_condition(tree, (no, row), asked, now)?;
        if let Condition::Question { question } = &on {
            super::message::check_inbox_limit(tree, row.owner)?;
            let number = tree.row().last_message.0 + 1 + count_questions(&drafts);
            let message = Message {
                no: MessageNo(number),
                to: row.owner,
                from: MessageSender::Child(no),
                body: question.clone(),
                sent_at: now,
                purpose: MessagePurpose::Question(*index),
                interrupt: false,
                closes_input: false,
                reply_to: None,
            };
            drafts.push(Event::MessageSent(message.into()).into());
        }
        let call = ParkedCall { index: *index, condition: on };
        open.push(call.clone());
        drafts.push(Event::Parked { no, call: Box::new(call) }.into());
    }
    // The clock may have answered an open call already, though its tick is still to come.
    let answered_now = on_its_way || open.iter().any(|call| is_condition_met(tree, no, call, now));
    let suspended = match then {
        AfterPark::Continue => false,
        // Fewer open calls than the work believes: an answer is on its way to it. With none at
        // all there is nothing that would ever wake it.
        AfterPark::Suspend { parked_count: known } => {
            !answered_now && known > 0 && known == open.len()
        }
    };
    if suspended {
        drafts.push(Event::Suspended { no, partial: None }.into());
    }
    Ok(Decision { drafts, reply: CommandReply::Parked { suspended } })
}

fn count_questions(drafts: &[Draft]) -> u64 {
    drafts.iter().filter(|draft| matches!(draft.event, Event::MessageSent(_))).count() as u64
}

fn resolve_condition(
    tree: &TaskTree,
    (no, row): (TaskNo, &TaskRow),
    asked: &ConditionRequest,
    now: Time,
) -> Result<Condition, Refusal> {
    let until = |patience: &Option<Millis>| patience.map(|span| now.after(span));
    Ok(match asked {
        ConditionRequest::Tasks { tasks, mode, timeout: patience, interruptible } => {
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
        ConditionRequest::Message { patience } => {
            inbox::check_pulls_inbox(no, row)?;
            Condition::Message { until: until(patience) }
        }
        ConditionRequest::Inbox => {
            inbox::check_pulls_inbox(no, row)?;
            Condition::Inbox
        }
        ConditionRequest::Timer { duration: span } => Condition::Timer { until: now.after(*span) },
        ConditionRequest::Question { question } => {
            Condition::Question { question: question.clone() }
        }
        ConditionRequest::Approval { request } => {
            Condition::Approval { request: request.clone(), since: now }
        }
        ConditionRequest::ClientTool { request } => {
            Condition::ClientTool { request: request.clone() }
        }
    })
}

/// What a wait for everything covers. Results that an earlier run left behind are to be named: they
/// leave memory with it, so that they cannot be found here reliably.
fn uncollected_children(tree: &TaskTree, no: TaskNo, run: RunNo) -> BTreeSet<TaskNo> {
    let wanted = |no: &TaskNo| {
        tree.get(*no)
            .is_some_and(|row| row.is_alive() || !row.is_collected() && row.opened_by_run() == run)
    };
    tree.children(Owner::Task(no)).filter(wanted).collect()
}

/// A task waits for its own children only: waiting for itself or for somebody above would never end.
fn check_wait(tree: &TaskTree, (no, row): (TaskNo, &TaskRow), task: TaskNo) -> Result<(), Refusal> {
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
        .owner_chain(row.owner)
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
pub(crate) fn is_condition_met(tree: &TaskTree, no: TaskNo, call: &ParkedCall, now: Time) -> bool {
    let on = &call.condition;
    if on.until().is_some_and(|until| until <= now) {
        return true;
    }
    match on {
        Condition::Tasks(wait) => {
            if wait.interruptible && tree.inbox(Owner::Task(no)).next().is_some() {
                return true;
            }
            is_wait_met(tree, (no, call.index), wait)
        }
        Condition::Message { .. } => tree.inbox(Owner::Task(no)).next().is_some(),
        Condition::Inbox => tree.get(no).is_some_and(|row| inbox::has_inbox_items(tree, no, row)),
        Condition::Approval { request, .. } => {
            approve::is_decided_without_operator(tree, no, request)
        }
        Condition::Timer { .. } | Condition::Question { .. } | Condition::ClientTool { .. } => {
            false
        }
    }
}

/// Whether the awaited tasks have ended: from the count that is kept, once the call is parked.
fn is_wait_met(tree: &TaskTree, (no, index): (TaskNo, CallIndex), wait: &TasksCondition) -> bool {
    let waits = tree.links(Owner::Task(no)).map(|node| &node.wait_counts);
    let kept = waits.and_then(|waits| waits.iter().find(|counted| counted.index == index));
    let lives = |no: &&TaskNo| tree.get(**no).is_some_and(TaskRow::is_alive);
    let left = match kept {
        Some(kept) => kept.remaining as usize,
        None => wait.tasks.iter().filter(lives).count(),
    };
    match wait.mode {
        WaitMode::Any => wait.tasks.is_empty() || left < wait.tasks.len(),
        WaitMode::All => left == 0,
    }
}

/// The events that answer a satisfied call: results and messages leave with the answer.
pub(crate) fn complete_call(tree: &TaskTree, no: TaskNo, call: &ParkedCall) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    let mine = Owner::Task(no);
    let answer = match &call.condition {
        Condition::Approval { request, .. } => {
            return approve::decide_without_operator(tree, no, call, request);
        }
        Condition::Tasks(wait) => {
            let ended = is_wait_met(tree, (no, call.index), wait);
            if ended {
                let rows = wait.tasks.iter().filter_map(|no| Some((*no, tree.get(*no)?)));
                let endings: Vec<_> = rows.flat_map(|(no, row)| results_of(no, row)).collect();
                drafts.extend(collected_event(&endings).map(Draft::from));
                CallCompletion::Results(endings)
            } else if wait.interruptible && tree.unread_count(mine) > 0 {
                CallCompletion::Interrupted
            } else {
                CallCompletion::Elapsed
            }
        }
        Condition::Message { .. } => match tree.inbox(mine).next() {
            Some(message) => {
                drafts.push(Event::MessageRead { to: mine, message: message.no }.into());
                CallCompletion::Message(message.clone())
            }
            None => CallCompletion::Elapsed,
        },
        Condition::Inbox => match tree.get(no) {
            Some(row) => {
                let (taken, answer) = inbox::take_inbox(tree, no, row);
                drafts.extend(taken);
                answer
            }
            None => CallCompletion::Elapsed,
        },
        Condition::Timer { .. } | Condition::Question { .. } | Condition::ClientTool { .. } => {
            CallCompletion::Elapsed
        }
    };
    drafts.push(Draft::call_completed(no, call.index, call.condition.label(), answer));
    drafts
}
