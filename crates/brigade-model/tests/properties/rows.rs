//! Facts about single rows, derived in the simplest way.

use brigade_model::command::ClientCaller;
use brigade_model::ids::{ClientIdentity, Owner, TaskNo};
use brigade_model::name::TaskName;
use brigade_model::outcome::Outcome;
use brigade_model::spec::TaskSpec;
use brigade_model::task::{QueueReason, ResultDelivery, TaskRow, TaskState};
use brigade_model::work::{KeptDeadline, ParentClosePolicy, StdinSource, Work};

pub(crate) fn same(one: &TaskName, other: &TaskName) -> bool {
    one.as_str().to_lowercase() == other.as_str().to_lowercase()
}

/// Returns the task that kept this one.
pub(crate) fn limited_by(row: &TaskRow) -> Option<TaskNo> {
    row.extras.as_ref().and_then(|extra| extra.limited_by)
}

pub(crate) fn limit_holder(row: &TaskRow) -> Owner {
    limited_by(row).map_or(row.owner, Owner::Task)
}

pub(crate) fn is_alive(row: &TaskRow) -> bool {
    !matches!(row.state, TaskState::Ended(_))
}

pub(crate) fn is_ending(row: &TaskRow) -> bool {
    matches!(row.state, TaskState::Stopping(_) | TaskState::Closing { .. } | TaskState::Ended(_))
}

pub(crate) fn queues_for_runtime(row: &TaskRow) -> bool {
    matches!(&row.state, TaskState::Queued(queued) if queued.reason == QueueReason::RuntimeLimit)
}

pub(crate) fn holds_slot(row: &TaskRow) -> bool {
    match &row.state {
        TaskState::Running | TaskState::Stopping(_) => true,
        TaskState::Ended(ended) => ended.lingering,
        _ => false,
    }
}

/// Returns whether it and its descendants are being stopped.
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

pub(crate) fn is_collected(row: &TaskRow) -> bool {
    matches!(&row.state, TaskState::Ended(ended) if ended.delivery == ResultDelivery::Collected)
}

/// Returns whether it is a process without an input.
pub(crate) fn has_no_input(row: &TaskRow) -> bool {
    matches!(&row.spec.work, Work::Process(process) if process.stdin == StdinSource::Null)
}

/// Returns whether a result is delivered to a client: the same one, in the same or a lapsed
/// conversation.
pub(crate) fn receives_from(client: &ClientCaller, starter: &ClientIdentity) -> bool {
    if starter.name != client.identity.name {
        return false;
    }
    match &starter.conversation {
        None => client.identity.conversation.is_none(),
        Some(id) => client.identity.conversation.as_ref() == Some(id) || client.lapsed.contains(id),
    }
}

/// Returns whether it is a process that outlives a holder's deadline when it is kept.
pub(crate) fn outlives_deadline(spec: &TaskSpec) -> bool {
    spec.kept_deadline.is_none() && matches!(spec.work, Work::Process(_))
}

pub(crate) fn ends_by_deadline(spec: &TaskSpec) -> bool {
    !outlives_deadline(spec) && spec.kept_deadline != Some(KeptDeadline::Dropped)
}
