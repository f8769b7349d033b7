//! Parks calls and completes those whose condition is met.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::collect::{collected_event, results_of};
use super::{CommandReply, Decision, Draft, approve, inbox};
use crate::call::{
    CallCompletion, Condition, ConditionRequest, ParkedCall, RetryPause, TaskReadiness,
    TasksCondition, WaitMode,
};
use crate::command::AfterPark;
use crate::event::Event;
use crate::ids::{CallIndex, MessageNo, Millis, Owner, RunNo, TaskNo, Time};
use crate::message::{Message, MessagePurpose, MessageSender};
use crate::name::check_message_name;
use crate::readiness::Readiness;
use crate::refusal::Refusal;
use crate::task::{TaskRow, TaskState};
use crate::task_tree::{TaskTree, TaskView};

/// A request to park calls of an attempt.
pub(super) struct ParkRequest<'a> {
    pub(super) calls: &'a [(CallIndex, ConditionRequest)],
    /// The number of journal entries that the work has acknowledged.
    pub(super) acked_entries: u32,
    pub(super) then: AfterPark,
}

pub(super) fn park(
    tree: &TaskTree,
    task: TaskView<'_>,
    request: &ParkRequest<'_>,
    now: Time,
) -> Result<Decision, Refusal> {
    let TaskView { no, row } = task;
    let acked_entries = request.acked_entries;
    if !matches!(row.state, TaskState::Running) {
        return Err(Refusal::ended(format!("{} {}", task.address(), row.state.render_phrase())));
    }
    let mut drafts: Vec<Draft> = Vec::with_capacity(request.calls.len() + 2);
    let mut open = row.parked_calls.clone();
    if row.unacked.is_some_and(|unacked| acked_entries > unacked) {
        drafts.push(Event::Acknowledged { no }.into());
    }
    // A completion that is being delivered counts as delivered.
    let is_delivering = row.unacked.is_some_and(|unacked| acked_entries <= unacked);
    for (index, requested) in request.calls {
        if row.parked_call(*index).is_some() {
            continue;
        }
        let condition = resolve_condition(tree, task, requested, now)?;
        if let Condition::Question { question } = &condition {
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
                name: None,
                key: None,
            };
            drafts.push(Event::MessageSent(message.into()).into());
        }
        let call = ParkedCall { index: *index, condition };
        open.push(call.clone());
        drafts.push(Event::Parked { no, call: Box::new(call) }.into());
    }
    // The clock may have completed an open call, although its tick has not come yet.
    let is_completed =
        is_delivering || open.iter().any(|call| is_condition_met(tree, no, call, now));
    let suspended = match request.then {
        AfterPark::Continue => false,
        // Fewer open calls than the work knows of: a completion is on its way to it. Without any
        // open call, nothing would ever wake the task.
        AfterPark::Suspend { parked_count } => {
            !is_completed && parked_count > 0 && parked_count == open.len()
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
    task: TaskView<'_>,
    requested: &ConditionRequest,
    now: Time,
) -> Result<Condition, Refusal> {
    let TaskView { no, row } = task;
    let until = |timeout: &Option<Millis>| timeout.map(|timeout| now.after(timeout));
    Ok(match requested {
        ConditionRequest::Tasks { tasks, mode, timeout, interruptible } => {
            let tasks = if tasks.is_empty() {
                uncollected_children(tree, no, row.run)
            } else {
                for &awaited in tasks {
                    check_wait(tree, task, awaited)?;
                }
                tasks.iter().copied().collect()
            };
            Condition::Tasks(TasksCondition {
                tasks: tasks.into_iter().collect(),
                mode: *mode,
                until: until(timeout),
                interruptible: *interruptible,
                until_ready: false,
            })
        }
        ConditionRequest::Ready { tasks, mode, timeout, interruptible } => {
            if tasks.is_empty() {
                return Err(Refusal::invalid("name the tasks that are to become ready"));
            }
            for &awaited in tasks {
                check_wait(tree, task, awaited)?;
                tree.get(awaited).map_or(Ok(()), |row| row.check_readiness_check(awaited))?;
            }
            let tasks: BTreeSet<TaskNo> = tasks.iter().copied().collect();
            Condition::Tasks(TasksCondition {
                tasks: tasks.into_iter().collect(),
                mode: *mode,
                until: until(timeout),
                interruptible: *interruptible,
                until_ready: true,
            })
        }
        ConditionRequest::Message { timeout, name } => {
            inbox::check_pulls_inbox(task)?;
            name.as_deref().map_or(Ok(()), check_message_name)?;
            Condition::Message { until: until(timeout), name: name.clone() }
        }
        ConditionRequest::Messages => {
            inbox::check_pulls_inbox(task)?;
            Condition::Messages
        }
        ConditionRequest::Inbox => {
            inbox::check_pulls_inbox(task)?;
            Condition::Inbox
        }
        ConditionRequest::Timer { duration } => Condition::Timer { until: now.after(*duration) },
        ConditionRequest::Retry { label, attempt, error, pause } => {
            Condition::Retry(Box::new(RetryPause {
                label: label.clone(),
                attempt: *attempt,
                error: error.clone(),
                until: now.after(*pause),
            }))
        }
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

/// Returns the tasks that a wait for all children covers. Results of an earlier run must be named,
/// because they are evicted with that run and cannot be found here reliably.
fn uncollected_children(tree: &TaskTree, no: TaskNo, run: RunNo) -> BTreeSet<TaskNo> {
    let is_covered = |no: &TaskNo| {
        tree.get(*no)
            .is_some_and(|row| row.is_alive() || !row.is_collected() && row.opened_by_run() == run)
    };
    tree.children(Owner::Task(no)).filter(is_covered).collect()
}

/// Checks that a task waits only for its own children. A wait for itself or an ancestor would never
/// end.
fn check_wait(tree: &TaskTree, task: TaskView<'_>, awaited: TaskNo) -> Result<(), Refusal> {
    let TaskView { no, row } = task;
    let me = task.address();
    if awaited == no {
        return Err(Refusal::invalid(format!("{me} cannot wait for itself")));
    }
    let Some(target) = tree.get(awaited) else {
        return Err(super::scope::no_such_task(tree, awaited));
    };
    if target.owner == Owner::Task(no) {
        return Ok(());
    }
    let ancestors: Vec<String> = tree
        .owner_chain(row.owner)
        .filter_map(Owner::task)
        .filter_map(|no| Some(tree.get(no)?.address(no)))
        .collect();
    let address = target.address(awaited);
    if ancestors.contains(&address) {
        let path = ancestors.iter().rev().cloned().collect::<Vec<_>>().join(" > ");
        return Err(Refusal::invalid(format!(
            "a wait cycle: {address} is an ancestor of {me} ({path} > {me}) and ends only after it"
        )));
    }
    Err(Refusal::forbidden(format!("{address} is not a child of {me}")))
}

/// Returns whether the condition of a call is met.
pub(crate) fn is_condition_met(tree: &TaskTree, no: TaskNo, call: &ParkedCall, now: Time) -> bool {
    let condition = &call.condition;
    if condition.until().is_some_and(|until| until <= now) {
        return true;
    }
    match condition {
        Condition::Tasks(wait) => {
            if wait.interruptible && tree.inbox(Owner::Task(no)).next().is_some() {
                return true;
            }
            is_wait_met(tree, no, call, wait)
        }
        Condition::Message { name, .. } => next_message(tree, no, name.as_deref()).is_some(),
        Condition::Messages => tree.unread_count(Owner::Task(no)) > 0,
        Condition::Inbox => tree.view(no).is_some_and(|task| inbox::has_inbox_items(tree, task)),
        Condition::Approval { request, .. } => {
            approve::is_decided_without_operator(tree, no, request)
        }
        Condition::Timer { .. }
        | Condition::Retry(_)
        | Condition::Question { .. }
        | Condition::ClientTool { .. } => false,
    }
}

/// Returns the oldest unread message, of this name if one is given.
fn next_message<'a>(
    tree: &'a TaskTree,
    no: TaskNo,
    name: Option<&str>,
) -> Option<&'a Arc<Message>> {
    tree.inbox(Owner::Task(no)).find(|message| message.matches_name(name))
}

/// Returns the readiness of an awaited task, which is in memory as long as the wait.
fn readiness(tree: &TaskTree, no: TaskNo) -> Readiness {
    tree.get(no).map_or(Readiness::EndedBefore, TaskRow::readiness)
}

/// Returns whether the awaited tasks have ended, or are ready. Once the call is parked, a counter answers that.
fn is_wait_met(tree: &TaskTree, no: TaskNo, call: &ParkedCall, wait: &TasksCondition) -> bool {
    if wait.until_ready {
        return Readiness::is_wait_over(
            wait.mode,
            wait.tasks.iter().map(|no| readiness(tree, *no)),
        );
    }
    let counts = tree.links(Owner::Task(no)).map(|node| &node.wait_counts);
    let count = counts.and_then(|counts| counts.iter().find(|count| count.index == call.index));
    let is_alive = |no: &&TaskNo| tree.get(**no).is_some_and(TaskRow::is_alive);
    let alive = match count {
        Some(count) => count.remaining as usize,
        None => wait.tasks.iter().filter(is_alive).count(),
    };
    match wait.mode {
        WaitMode::Any => wait.tasks.is_empty() || alive < wait.tasks.len(),
        WaitMode::All => alive == 0,
    }
}

fn task_readiness(no: TaskNo, row: &TaskRow) -> TaskReadiness {
    let result = results_of(no, row).find(|result| result.run == row.run);
    TaskReadiness { no, ready_at: row.ready_at(), result }
}

/// Returns the events that complete a call whose condition is met. They consume its results and
/// messages.
pub(crate) fn complete_call(tree: &TaskTree, no: TaskNo, call: &ParkedCall) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    let me = Owner::Task(no);
    let completion = match &call.condition {
        Condition::Approval { request, .. } => {
            return approve::decide_without_operator(tree, no, call, request);
        }
        Condition::Tasks(wait) => {
            let met = is_wait_met(tree, no, call, wait);
            if met && wait.until_ready {
                let rows = wait.tasks.iter().filter_map(|no| Some((*no, tree.get(*no)?)));
                CallCompletion::Readiness(rows.map(|(no, row)| task_readiness(no, row)).collect())
            } else if met {
                let rows = wait.tasks.iter().filter_map(|no| Some((*no, tree.get(*no)?)));
                let results: Vec<_> = rows.flat_map(|(no, row)| results_of(no, row)).collect();
                drafts.extend(collected_event(&results).map(Draft::from));
                CallCompletion::Results(results)
            } else if wait.interruptible && tree.unread_count(me) > 0 {
                CallCompletion::Interrupted
            } else {
                CallCompletion::Elapsed
            }
        }
        Condition::Message { name, .. } => match next_message(tree, no, name.as_deref()) {
            Some(message) => {
                drafts.push(Event::MessageRead { to: me, message: message.no }.into());
                CallCompletion::Message(message.clone())
            }
            None => CallCompletion::Elapsed,
        },
        Condition::Messages => {
            let (taken, messages) = inbox::take_messages(tree, no);
            drafts.extend(taken);
            CallCompletion::Messages(messages)
        }
        Condition::Inbox => match tree.view(no) {
            Some(task) => {
                let (taken, completion) = inbox::take_inbox(tree, task);
                drafts.extend(taken);
                completion
            }
            None => CallCompletion::Elapsed,
        },
        Condition::Retry(pause) => {
            CallCompletion::Retried { attempt: pause.attempt, error: pause.error.clone() }
        }
        Condition::Timer { .. } | Condition::Question { .. } | Condition::ClientTool { .. } => {
            CallCompletion::Elapsed
        }
    };
    drafts.push(Draft::call_completed(no, call.index, call.condition.label(), completion));
    drafts
}
