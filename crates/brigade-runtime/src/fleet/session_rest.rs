//! Sessions that need no owner, and those that another node may have.

use brigade_model::ids::{Owner, TaskNo};
use brigade_model::task::{TaskRow, TaskState};
use brigade_model::task_tree::TaskTree;

use super::NodeHost;
use super::host_watch::is_elsewhere;
use crate::performer::{PerformerRegistry, TaskId};

/// Returns true if nothing of a session needs this process: all its tasks wait, have ended, or run on
/// another host.
pub(super) fn is_at_rest(tree: &TaskTree, host: &NodeHost) -> bool {
    !tree.has_sweep() && tree.rows().all(|(no, row)| rests(tree, no, row, host))
}

/// Returns true if a session can be given to another node: it is at rest, except for agents that wait here
/// for their programs on another host. They continue there.
pub(super) fn is_movable(tree: &TaskTree, host: &NodeHost) -> bool {
    let waits_for_program = |no: TaskNo| {
        let mut children = tree.children(Owner::Task(no)).filter_map(|child| tree.get(child));
        children.any(|row| row.spec.part_of_parent && row.is_alive() && is_elsewhere(row, host))
    };
    !tree.has_sweep()
        && tree.rows().all(|(no, row)| {
            rests(tree, no, row, host) || row.state == TaskState::Running && waits_for_program(no)
        })
}

/// Ends what a session that is given away has in this process only.
pub(super) fn halt_movable(tree: &TaskTree, performers: &PerformerRegistry) {
    for (no, row) in tree.rows().filter(|(_, row)| row.is_performed()) {
        if let Some(performer) = performers.get(&row.spec.work.kind()) {
            performer.halt(TaskId { session: tree.id(), no });
        }
    }
}

fn rests(tree: &TaskTree, no: TaskNo, row: &TaskRow, host: &NodeHost) -> bool {
    // The next owner could not know whether a message that is on its way has arrived.
    let is_pushing = || tree.inbox(Owner::Task(no)).next().is_some();
    match &row.state {
        TaskState::Waiting => row.spec.attachment.is_none(),
        TaskState::Closing { .. } | TaskState::Away(_) => true,
        // Nothing of a stop that was not confirmed on another host is here.
        TaskState::Ended(ended) => !ended.lingering || is_elsewhere(row, host),
        TaskState::Running | TaskState::Stopping(_) => is_elsewhere(row, host) && !is_pushing(),
        _ => false,
    }
}
