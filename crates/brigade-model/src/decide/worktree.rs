//! Decides the worktree of a task: made by an attempt, released after the end.

use super::{CommandReply, Decision};
use crate::command::ReleaseWorktreeCommand;
use crate::event::Event;
use crate::refusal::Refusal;
use crate::task_tree::{TaskTree, TaskView};
use crate::worktree::{Worktree, WorktreeState};

/// Stores the worktree of a running attempt. A repeated report changes nothing.
pub(super) fn set(task: TaskView<'_>, worktree: &Worktree) -> Result<Decision, Refusal> {
    if !task.row.spec.has_worktree() {
        let address = task.address();
        return Err(Refusal::invalid(format!("{address} was started without a worktree")));
    }
    if task.row.worktree() == Some(worktree) {
        return Ok(Decision::reply(CommandReply::Done));
    }
    let event = Event::WorktreeSet { no: task.no, worktree: Box::new(worktree.clone()) };
    Ok(Decision::event(event, CommandReply::Done))
}

/// Stores the end of a worktree. A task that works in it again keeps it, and a repeat changes
/// nothing.
pub(super) fn release(
    tree: &TaskTree,
    release: &ReleaseWorktreeCommand,
) -> Result<Decision, Refusal> {
    let no = release.no;
    let Some(row) = tree.get(no) else { return Err(super::scope::no_such_task(tree, no)) };
    if row.is_alive() {
        let address = row.address(no);
        return Err(Refusal::conflict(format!("{address} is alive and uses its worktree")));
    }
    match row.worktree() {
        Some(worktree) if worktree.serial == release.serial => {}
        _ => {
            let address = row.address(no);
            return Err(Refusal::not_found(format!("{address} has no such worktree")));
        }
    }
    let is_stored = row.worktree().is_some_and(|worktree| worktree.state == release.state);
    if is_stored || release.state == WorktreeState::InUse {
        return Ok(Decision::reply(CommandReply::Done));
    }
    let event = Event::WorktreeReleased { no, state: release.state };
    Ok(Decision::event(event, CommandReply::Done))
}
