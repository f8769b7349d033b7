//! What came of the command, on any POSIX system: its process group.
//!
//! A process that leaves the group (a daemon, a shell with job control) is out of reach here: there
//! is no subreaper and no handle that would outlast a pid.

use super::record::{Ending, ProcessId, Survivor};
use super::sys::{self, signal};

/// Nobody tells the shim when a member of the group ends that is not its own child.
pub(super) const ENDS_UNHEARD: bool = true;

#[derive(Debug)]
pub(super) struct Tree {
    /// The command, and its group.
    command: u32,
    is_command_alive: bool,
}

/// What is left of the tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The command has ended so.
    Command(Ending),
    Some,
    Nothing,
}

/// Descriptors that the starter left open are its own fault here: it opens all to be closed on exec.
pub(super) fn prepare(_spare: u32) {}

/// There is no portable way to ask: the lock on the claim is the identity.
pub(super) fn start_time(_pid: u32) -> u64 {
    0
}

pub(super) fn own_id() -> ProcessId {
    ProcessId { pid: std::process::id(), start: 0 }
}

impl Tree {
    pub(super) fn new(command: ProcessId, _group: Option<std::path::PathBuf>) -> Self {
        Self { command: command.pid, is_command_alive: true }
    }

    pub(super) fn collect(&mut self) -> Left {
        if self.is_command_alive {
            let Some(ending) = sys::reap(self.command) else { return Left::Some };
            self.is_command_alive = false;
            return Left::Command(ending);
        }
        // The group keeps its number as long as it has members.
        match self.send(0) {
            Ok(()) => Left::Some,
            Err(_) => Left::Nothing,
        }
    }

    /// The wait that told the ending has reaped it too.
    pub(super) fn reap_command(&mut self) {}

    pub(super) fn ask(&mut self) {
        let _ = self.send(signal::TERM).and_then(|()| self.send(signal::CONT));
    }

    pub(super) fn force(&mut self) {
        let _ = self.send(signal::KILL);
    }

    /// The members cannot be listed: the group stands for them.
    pub(super) fn survivors(&self) -> Vec<Survivor> {
        let id = ProcessId { pid: self.command, start: 0 };
        self.send(0).map(|()| Survivor { id, name: "group".into() }).into_iter().collect()
    }

    fn send(&self, number: i32) -> std::io::Result<()> {
        sys::send(-(self.command as i32), number)
    }
}
