//! The origin of a connected process.

use std::collections::HashMap;

use brigade_model::ids::Attempt;
use brigade_process::{PeerLineage, PeerProcess, ProcessId};

use crate::performer::TaskId;

/// The shims that are alive, and their task attempts.
pub(super) type RegisteredShims = HashMap<ProcessId, TaskAttempt>;

/// A task and one of its attempts.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskAttempt {
    pub(super) task: TaskId,
    pub(super) attempt: Attempt,
}

/// The origin of a connected process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerOrigin {
    /// A descendant of the shim of this task's attempt.
    Task(TaskId, Attempt),
    /// A process of no task, as far as its ancestors tell. Orphans of a dead shim are here too, so
    /// this alone makes nobody the operator.
    Outside,
    /// A process that is dead, whose ancestors are not known, or that descends from this process
    /// but from no shim.
    Unknown,
}

impl PeerOrigin {
    pub(super) fn of(peer: &PeerProcess, shims: &RegisteredShims) -> Self {
        if peer.is_self() {
            // The program is the daemon and its own client.
            return Self::Outside;
        }
        match peer.lineage() {
            PeerLineage::Complete(ancestors) => Self::from_lineage(&ancestors, shims),
            PeerLineage::Untraceable => Self::Outside,
            PeerLineage::Broken => Self::Unknown,
        }
    }

    fn from_lineage(ancestors: &[ProcessId], shims: &RegisteredShims) -> Self {
        let is_own_descendant = || ancestors.iter().any(|one| one.pid == std::process::id());
        match ancestors.iter().find_map(|ancestor| shims.get(ancestor)) {
            Some(shim) => Self::Task(shim.task, shim.attempt),
            None if is_own_descendant() => Self::Unknown,
            None => Self::Outside,
        }
    }
}

#[cfg(test)]
mod tests {
    use brigade_model::ids::{SessionId, TaskNo};

    use super::*;

    #[test]
    fn a_reused_pid_of_a_shim_is_not_its_task() {
        let id = |pid, start| ProcessId { pid, start };
        let task = TaskId { session: SessionId::from_uuid(uuid::Uuid::nil()), no: TaskNo::FIRST };
        let attempt = TaskAttempt { task, attempt: Attempt(1) };
        let shims = RegisteredShims::from([(id(50, 500), attempt)]);
        let origin = |ancestors: &[ProcessId]| PeerOrigin::from_lineage(ancestors, &shims);
        assert_eq!(
            origin(&[id(90, 900), id(50, 500), id(1, 1)]),
            PeerOrigin::Task(task, Attempt(1))
        );
        // Another process has the pid of a shim.
        assert_eq!(origin(&[id(90, 900), id(50, 777), id(1, 1)]), PeerOrigin::Outside);
        let us = id(std::process::id(), 5);
        assert_eq!(origin(&[id(90, 900), us, id(1, 1)]), PeerOrigin::Unknown);
        assert_eq!(origin(&[id(90, 900), id(50, 500), us]), PeerOrigin::Task(task, Attempt(1)));
    }
}
