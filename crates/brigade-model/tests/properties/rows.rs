//! Facts about single rows, read off them in the simplest way.

use brigade_model::command::ClientCaller;
use brigade_model::ids::{ClientIdentity, Owner, TaskNo};
use brigade_model::name::TaskName;
use brigade_model::outcome::Outcome;
use brigade_model::spec::TaskSpec;
use brigade_model::task::{ResultDelivery, TaskRow, TaskState};
use brigade_model::work::{KeptDeadline, ParentClosePolicy, StdinSource, Work};

pub(crate) fn same(one: &TaskName, other: &TaskName) -> bool {
    one.as_str().to_lowercase() == other.as_str().to_lowercase()
}

/// The task that a kept one came from.
pub(crate) fn limited_by(row: &TaskRow) -> Option<TaskNo> {
    row.extras.as_ref().and_then(|extra| extra.limited_by)
}

pub(crate) fn limit_holder(row: &TaskRow) -> Owner {
    limited_by(row).map_or(row.owner, Owner::Task)
}

pub(crate) fn living(row: &TaskRow) -> bool {
    !matches!(row.state, TaskState::Ended(_))
}

pub(crate) fn ending(row: &TaskRow) -> bool {
    matches!(row.state, TaskState::Stopping(_) | TaskState::Closing { .. } | TaskState::Ended(_))
}

pub(crate) fn holds_slot(row: &TaskRow) -> bool {
    match &row.state {
        TaskState::Running | TaskState::Stopping(_) => true,
        TaskState::Ended(ended) => ended.lingering,
        _ => false,
    }
}

/// Whether it and what is below it have been told to end.
pub(crate) fn being_stopped(row: &TaskRow) -> bool {
    match &row.state {
        TaskState::Stopping(_) | TaskState::Ended(_) => true,
        TaskState::Closing { outcome } => match **outcome {
            Outcome::Succeeded { .. } => {
                row.spec.work.policy().parent_close == ParentClosePolicy::StopChildren
            }
            _ => true,
        },
        _ => false,
    }
}

pub(crate) fn collected(row: &TaskRow) -> bool {
    matches!(&row.state, TaskState::Ended(ended) if ended.delivery == ResultDelivery::Collected)
}

/// A command that reads from nothing.
pub(crate) fn is_deaf(row: &TaskRow) -> bool {
    matches!(&row.spec.work, Work::Process(process) if process.stdin == StdinSource::Null)
}

/// To whom a result goes: to the same client in the same conversation, or in one that lapsed.
pub(crate) fn takes(client: &ClientCaller, starter: &ClientIdentity) -> bool {
    if starter.name != client.identity.name {
        return false;
    }
    match &starter.conversation {
        None => client.identity.conversation.is_none(),
        Some(id) => client.identity.conversation.as_ref() == Some(id) || client.lapsed.contains(id),
    }
}

/// A process that a deadline above it does not end when it is kept.
pub(crate) fn outlives_deadline(spec: &TaskSpec) -> bool {
    spec.kept_deadline.is_none() && matches!(spec.work, Work::Process(_))
}

pub(crate) fn ends_by_deadline(spec: &TaskSpec) -> bool {
    !outlives_deadline(spec) && spec.kept_deadline != Some(KeptDeadline::Dropped)
}
