//! Sets limits, closes a session, and opens further runs of ended tasks.

use super::scope::{
    ControlVerb, fence, may_control, refuse_unshared, render_starter, resolve_controllable,
};
use super::{CommandReply, Decision};
use crate::call::SpawnedTask;
use crate::command::{
    Caller, ClientCaller, ClientControl, CloseCommand, ResumeCommand, SetLimitsCommand,
};
use crate::event::Event;
use crate::ids::{ConversationId, Owner, TaskNo};
use crate::limits::Limits;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::task::TaskRow;
use crate::task_tree::{SessionState, TaskTree};

pub(super) fn set_limits(tree: &TaskTree, set: &SetLimitsCommand) -> Result<Decision, Refusal> {
    fence(tree, &set.caller)?;
    if is_confined(&set.caller) {
        return Err(Refusal::forbidden("only the operator sets limits here"));
    }
    let holder = match &set.task {
        Some(task) => {
            let no = resolve_controllable(tree, &set.caller, task, ControlVerb::SetLimits)?;
            // The limits of an ended task may still apply to kept tasks that came from it.
            let is_holder = tree.links(Owner::Task(no)).is_some_and(|node| node.limited_tasks > 0);
            if let Some(row) = tree.get(no).filter(|row| !row.is_alive() && !is_holder) {
                let address = row.address(no);
                let label = row.state.label();
                return Err(Refusal::ended(format!("{address} is {label}; resume it with more")));
            }
            Owner::Task(no)
        }
        None => match set.caller {
            Caller::Task { .. } => {
                return Err(Refusal::forbidden("a task cannot change its session's limits"));
            }
            Caller::Operator | Caller::Client(_) => Owner::Session,
        },
    };
    Ok(Decision::event(
        Event::LimitsSet { holder, limits: Box::new(set.limits) },
        CommandReply::Done,
    ))
}

pub(super) fn close(tree: &TaskTree, close: &CloseCommand) -> Result<Decision, Refusal> {
    if let Caller::Task { .. } = close.caller {
        return Err(Refusal::forbidden("a task cannot close its session"));
    }
    let is_alive = |no: &TaskNo| tree.get(*no).is_some_and(TaskRow::is_alive);
    let others = |no: &TaskNo| is_alive(no) && !may_control(tree, &close.caller, *no);
    if let Some(no) = tree.children(Owner::Session).find(others) {
        let address = tree.get(no).map(|row| row.address(no)).unwrap_or_default();
        let reason = format!("{address} runs here, started by {}", render_starter(tree, no));
        return Err(refuse_unshared(&reason, "`brigade close`"));
    }
    let mut decision = Decision::reply(CommandReply::Done);
    if tree.row().state == SessionState::Open {
        decision.drafts.push(Event::SessionClosing { reason: close.reason.clone() }.into());
        if tree.alive_count() == 0 {
            decision.drafts.push(Event::SessionClosed.into());
        }
    }
    Ok(decision)
}

pub(super) fn resume(tree: &TaskTree, resume: &ResumeCommand) -> Result<Decision, Refusal> {
    fence(tree, &resume.caller)?;
    let no = resolve_controllable(tree, &resume.caller, &resume.task, ControlVerb::Resume)?;
    if let Some(limits) = resume.limits.as_ref().filter(|_| is_confined(&resume.caller)) {
        check_tightening(tree, no, limits)?;
    }
    let opened = open_run(tree, &resume.caller, no, resume.limits.as_ref())?;
    let row = tree.get(no).ok_or_else(|| super::scope::no_such_task(tree, no))?;
    let kind = row.spec.work.kind();
    let reply = SpawnedTask { no, run: row.run.next(), kind, existing: true };
    Ok(Decision::event(opened, CommandReply::Spawned(reply)))
}

fn is_confined(caller: &Caller) -> bool {
    matches!(caller, Caller::Client(client) if client.control == ClientControl::Confined)
}

/// Refuses limits that are looser than those of the last run.
fn check_tightening(tree: &TaskTree, no: TaskNo, to: &Limits) -> Result<(), Refusal> {
    let Some(row) = tree.get(no) else { return Ok(()) };
    let present = row.limits.as_deref().copied().unwrap_or_default();
    match merge_limits(row, to).is_within(&present) {
        true => Ok(()),
        false => Err(Refusal::forbidden(format!(
            "the limits of {} can only be tightened here; only the operator loosens them",
            row.address(no)
        ))),
    }
}

/// Returns the limits of the next run. Those that `to` does not mention stay as they were.
fn merge_limits(row: &TaskRow, to: &Limits) -> Limits {
    row.limits.as_deref().map_or(*to, |limits| limits.override_with(to))
}

/// Returns the event that opens the next run of an ended task.
pub(super) fn open_run(
    tree: &TaskTree,
    caller: &Caller,
    no: TaskNo,
    limits: Option<&Limits>,
) -> Result<Event, Refusal> {
    let row = tree.get(no).ok_or_else(|| super::scope::no_such_task(tree, no))?;
    let address = row.address(no);
    let Some(ended) = row.ended() else {
        return Err(Refusal::conflict(format!(
            "{address} has not ended; it {}",
            row.state.render_phrase()
        )));
    };
    if ended.lingering {
        return Err(Refusal::unavailable(format!("{address} ended but has not returned yet")));
    }
    if matches!(*ended.outcome, Outcome::Cancelled(_)) && *caller != Caller::Operator {
        return Err(Refusal::forbidden(format!(
            "{address} was cancelled; only the operator can resume it"
        )));
    }
    let owner = match row.owner {
        Owner::Task(owner) if tree.get(owner).is_some_and(TaskRow::is_alive) => row.owner,
        _ => Owner::Session,
    };
    super::spawn::check_open(tree, owner)?;
    super::spawn::check_width(tree, owner)?;
    // It keeps the limits under which it was spawned, also with another owner.
    super::spawn::check_priced(tree, row.limit_holder(), &row.spec)?;
    super::spawn::check_budget(tree, row.limit_holder())?;
    if let Some(model) = row.spec.work.unpriced_model()
        && limits.is_some_and(|limits| limits.money.is_some())
    {
        return Err(Refusal::invalid(format!("the price of {model} is not known; give it")));
    }
    let taken =
        row.name.as_ref().is_some_and(|name| tree.find_alive_by_name(owner, name).is_some());
    Ok(Event::RunOpened {
        no,
        owner,
        limits: limits.map(|limits| Box::new(merge_limits(row, limits))),
        name_dropped: taken,
        conversation: resuming_conversation(caller, row),
        earlier_entries: Some(row.journal_len).filter(|len| *len > 0),
    })
}

/// Returns the conversation that receives the next run's result. If another caller resumes a task,
/// the result goes to the client that started it.
fn resuming_conversation(caller: &Caller, row: &TaskRow) -> Option<ConversationId> {
    let Caller::Client(ClientCaller { identity, .. }) = caller else { return None };
    let starter = row.client.as_ref().filter(|starter| starter.name == identity.name);
    starter.and_then(|_| identity.conversation.clone())
}
