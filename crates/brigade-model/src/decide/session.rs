//! A session's own life: limits, closing, and ended tasks that go on.

use super::scope::{Steering, fence, not_shared, resolve_to_steer, starter, steers};
use super::{Decision, Reply};
use crate::call::Spawned;
use crate::command::{Caller, ClientCaller, Close, Resume, SetLimits};
use crate::event::Event;
use crate::ids::{ConversationId, Owner, TaskNo};
use crate::limits::Limits;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::task::TaskRow;
use crate::tree::{SessionState, Tree};

pub(super) fn set_limits(tree: &Tree, set: &SetLimits) -> Result<Decision, Refusal> {
    fence(tree, &set.caller)?;
    let of = match &set.task {
        Some(task) => {
            let no = resolve_to_steer(tree, &set.caller, task, Steering::SetLimits)?;
            // Those of an ended task may still hold for kept ones that came from it.
            let holds = tree.node(Owner::Task(no)).is_some_and(|node| node.limited > 0);
            if let Some(row) = tree.get(no).filter(|row| !row.is_living() && !holds) {
                let (address, word) = (row.address(no), row.state.word());
                return Err(Refusal::ended(format!("{address} is {word}; resume it with more")));
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
    Ok(Decision::event(Event::LimitsSet { of, limits: Box::new(set.limits) }, Reply::Done))
}

pub(super) fn close(tree: &Tree, close: &Close) -> Result<Decision, Refusal> {
    if let Caller::Task { .. } = close.caller {
        return Err(Refusal::forbidden("a task cannot close its session"));
    }
    let living = |no: &TaskNo| tree.get(*no).is_some_and(TaskRow::is_living);
    let others = |no: &TaskNo| living(no) && !steers(tree, &close.caller, *no);
    if let Some(no) = tree.children(Owner::Session).find(others) {
        let address = tree.get(no).map(|row| row.address(no)).unwrap_or_default();
        let why = format!("{address} runs here, started by {}", starter(tree, no));
        return Err(not_shared(&why, "`brigade close`"));
    }
    let mut decision = Decision::reply(Reply::Done);
    if tree.row().state == SessionState::Open {
        decision.drafts.push(Event::SessionClosing { reason: close.reason.clone() }.into());
        if tree.living() == 0 {
            decision.drafts.push(Event::SessionClosed.into());
        }
    }
    Ok(decision)
}

pub(super) fn resume(tree: &Tree, resume: &Resume) -> Result<Decision, Refusal> {
    fence(tree, &resume.caller)?;
    let no = resolve_to_steer(tree, &resume.caller, &resume.task, Steering::Resume)?;
    let opened = open_run(tree, &resume.caller, no, resume.limits.as_ref())?;
    let row = tree.get(no).ok_or_else(|| super::scope::no_such_task(tree, no))?;
    let kind = row.spec.work.kind();
    let reply = Spawned { no, run: row.run.next(), kind, existing: true };
    Ok(Decision::event(opened, Reply::Spawned(reply)))
}

/// What is not mentioned stays as it was: more of one thing is not less care about another.
fn changed(row: &TaskRow, to: &Limits) -> Limits {
    row.limits.as_deref().map_or(*to, |limits| limits.changed(to))
}

/// The event that opens the next run of an ended task.
pub(super) fn open_run(
    tree: &Tree,
    caller: &Caller,
    no: TaskNo,
    limits: Option<&Limits>,
) -> Result<Event, Refusal> {
    let row = tree.get(no).ok_or_else(|| super::scope::no_such_task(tree, no))?;
    let address = row.address(no);
    let Some(ended) = row.ended() else {
        return Err(Refusal::conflict(format!(
            "{address} has not ended; it {}",
            row.state.phrase()
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
        Owner::Task(owner) if tree.get(owner).is_some_and(TaskRow::is_living) => row.owner,
        _ => Owner::Session,
    };
    super::spawn::check_open(tree, owner)?;
    super::spawn::check_width(tree, owner)?;
    // Also with another owner it stays with the limits under which it was spawned.
    super::spawn::check_priced(tree, row.limit_holder(), &row.spec)?;
    super::spawn::check_spent(tree, row.limit_holder())?;
    if let Some(model) = row.spec.work.unpriced()
        && limits.is_some_and(|limits| limits.money.is_some())
    {
        return Err(Refusal::invalid(format!("what {model} costs is not known; give its price")));
    }
    let taken = row.name.as_ref().is_some_and(|name| tree.living_named(owner, name).is_some());
    Ok(Event::RunOpened {
        no,
        owner,
        limits: limits.map(|limits| Box::new(changed(row, limits))),
        name_dropped: taken,
        conversation: asking_conversation(caller, row),
    })
}

/// The conversation to which the next run's result goes. Whoever else resumes a task leaves it to the
/// client that started it.
fn asking_conversation(caller: &Caller, row: &TaskRow) -> Option<ConversationId> {
    let Caller::Client(ClientCaller { identity, .. }) = caller else { return None };
    let starter = row.client.as_ref().filter(|starter| starter.name == identity.name);
    starter.and_then(|_| identity.conversation.clone())
}
