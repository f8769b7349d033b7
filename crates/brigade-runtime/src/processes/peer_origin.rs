//! From where a connected process comes.

use std::collections::HashMap;

use brigade_model::ids::Attempt;
use brigade_process::{PeerLineage, PeerProcess, ProcessId};

use crate::performer::TaskId;

/// The living shims and whose they are.
pub(super) type RegisteredShims = HashMap<ProcessId, (TaskId, Attempt)>;

/// From where a connected process comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerOrigin {
    /// From below the shim of this task's attempt.
    Task(TaskId, Attempt),
    /// From no task, as far as ancestors tell. Processes that a dead shim left behind come from here
    /// too, so this alone makes nobody the operator.
    Outside,
    /// It is dead, its ancestors could not be told, or it runs below this process and no shim.
    Unknown,
}

impl PeerOrigin {
    pub(super) fn of(peer: &PeerProcess, shims: &RegisteredShims) -> Self {
        if peer.is_self() {
            // A program that is the daemon and its client.
            return Self::Outside;
        }
        match peer.lineage() {
            PeerLineage::Complete(ancestors) => Self::from_lineage(&ancestors, shims),
            PeerLineage::Untraceable => Self::Outside,
            PeerLineage::Broken => Self::Unknown,
        }
    }

    fn from_lineage(ancestors: &[ProcessId], shims: &RegisteredShims) -> Self {
        let runs_below_us = || ancestors.iter().any(|one| one.pid == std::process::id());
        match ancestors.iter().find_map(|ancestor| shims.get(ancestor)) {
            Some((task, attempt)) => Self::Task(*task, *attempt),
            None if runs_below_us() => Self::Unknown,
            None => Self::Outside,
        }
    }
}

#[cfg(test)]
mod tests {
    use brigade_model::ids::{SessionId, TaskNo};

    use super::*;

    #[test]
    fn only_the_very_shim_stands_for_its_task() {
        let id = |pid, start| ProcessId { pid, start };
        let task = TaskId { session: SessionId::from_uuid(uuid::Uuid::nil()), no: TaskNo::FIRST };
        let shims = RegisteredShims::from([(id(50, 500), (task, Attempt(1)))]);
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
