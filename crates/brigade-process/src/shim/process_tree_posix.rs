//! The process tree on any POSIX system: a process group.
//!
//! A process that leaves the group, such as a daemon, is out of reach. There is no subreaper, and
//! no handle that outlasts a pid.

use super::record::{ProcessExit, ProcessId, Survivor};
use super::sys::{self, signal};

/// True: no signal announces the end of a group member that is not a child of the shim.
pub(super) const NEEDS_POLLING: bool = true;

#[derive(Debug)]
pub(super) struct ProcessTree {
    /// The pid of the process, and of its group.
    command: u32,
    is_command_alive: bool,
}

/// The state of the tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TreeStatus {
    /// The process has exited and is reaped.
    CommandExited(ProcessExit),
    Alive,
    Empty,
}

/// Does nothing: the runtime opens all descriptors close-on-exec.
pub(super) fn prepare(_spare: u32) {}

/// Returns zero: no portable start time exists. The lock on the claim identifies a shim.
pub(super) fn start_time(_pid: u32) -> u64 {
    0
}

pub(super) fn own_id() -> ProcessId {
    ProcessId { pid: std::process::id(), start: 0 }
}

impl ProcessTree {
    pub(super) fn new(command: ProcessId, _group: Option<std::path::PathBuf>) -> Self {
        Self { command: command.pid, is_command_alive: true }
    }

    pub(super) fn reap_ended(&mut self) -> TreeStatus {
        if self.is_command_alive {
            let Some(exit) = sys::reap(self.command) else { return TreeStatus::Alive };
            self.is_command_alive = false;
            return TreeStatus::CommandExited(exit);
        }
        // The group keeps its number while it has members.
        match self.send_signals(0) {
            Ok(()) => TreeStatus::Alive,
            Err(_) => TreeStatus::Empty,
        }
    }

    /// Does nothing: the wait for the exit has reaped the process.
    pub(super) fn reap_command(&mut self) {}

    pub(super) fn terminate(&mut self) {
        let _ = self.send_signals(signal::TERM).and_then(|()| self.send_signals(signal::CONT));
    }

    pub(super) fn kill(&mut self) {
        let _ = self.send_signals(signal::KILL);
    }

    /// Returns the group as one survivor, because its members cannot be listed.
    pub(super) fn survivors(&self) -> Vec<Survivor> {
        let id = ProcessId { pid: self.command, start: 0 };
        self.send_signals(0).map(|()| Survivor { id, name: "group".into() }).into_iter().collect()
    }

    fn send_signals(&self, number: i32) -> std::io::Result<()> {
        sys::send_signal(-(self.command as i32), number)
    }
}
