//! What came of the command, on Linux: everything below the shim.
//!
//! The shim is the subreaper: what loses its parent becomes its child, whatever session or group it
//! went to. So nothing escapes, and nothing is left when the kernel says that there are no children.

use super::proc::{self, Member};
use super::record::{Ending, ProcessId, Survivor};
use super::signals;
use super::sys::{self, Children, Handle, signal};

pub(super) use super::proc::own_id;

/// All that ends is a child of the shim by then, and a signal tells of it.
pub(super) const ENDS_UNHEARD: bool = false;

/// Rounds of asking. A process whose parent ends while the tree is listed may be missed in one.
const ASKING_ROUNDS: usize = 3;

/// Children reaped before anything else gets its turn: some breed as fast as they are reaped.
const MOST_AT_ONCE: usize = 1_000;

#[derive(Debug)]
pub(super) struct Tree {
    shim: u32,
    command: u32,
    /// Who was sent TERM. A second one makes some programs give up their tidying.
    asked: Vec<u32>,
}

/// What is left of the tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The command has ended so and waits for `reap`: the ending is to be written first.
    Command(Ending),
    Some,
    Nothing,
}

/// Descriptors below `spare` are the shim's, whoever left them open.
pub(super) fn prepare(spare: u32) {
    sys::close_inherited(spare);
    sys::inherit_orphans();
}

pub(super) fn start_time(pid: u32) -> u64 {
    proc::stat(pid).map_or(0, |stat| stat.start)
}

impl Tree {
    pub(super) fn new(command: ProcessId) -> Self {
        Self { shim: std::process::id(), command: command.pid, asked: Vec::new() }
    }

    /// Reaps what was inherited and has ended, up to the command itself.
    pub(super) fn collect(&mut self) -> Left {
        for _ in 0..MOST_AT_ONCE {
            match sys::peek() {
                Children::Ended(pid, ending) if pid == self.command => {
                    return Left::Command(ending);
                }
                Children::Ended(pid, _) => sys::reap(pid),
                Children::Alive => return Left::Some,
                Children::None => return Left::Nothing,
            }
        }
        signals::note(signal::CHLD);
        Left::Some
    }

    /// Reaps the command, after which its pid may belong to another process.
    ///
    /// What it leaves behind may be asked again: a shell that is just starting a program takes a
    /// signal for itself, and the program never hears of it.
    pub(super) fn reap_command(&mut self) {
        sys::reap(self.command);
        self.asked.clear();
    }

    /// Asks everything that was not asked yet to end. TERM stays pending in a stopped process, so
    /// it is continued as well.
    pub(super) fn ask(&mut self) {
        for _ in 0..ASKING_ROUNDS {
            let mut unasked = proc::descendants(self.shim);
            unasked.retain(|member| !self.asked.contains(&member.pid));
            if unasked.is_empty() {
                return;
            }
            for member in unasked {
                self.asked.push(member.pid);
                self.send(member, &[signal::TERM, signal::CONT]);
            }
        }
    }

    /// Kills everything, from the top. What is missed is inherited, and killed by the next call.
    ///
    /// A refusal means that a process has become another user's: it will be named as a survivor.
    /// Those below it are not inherited then, and have to be reached where they are.
    pub(super) fn force(&mut self) {
        for member in proc::descendants(self.shim) {
            self.send(member, &[signal::KILL]);
        }
    }

    /// Whatever still lives.
    pub(super) fn survivors(&self) -> Vec<Survivor> {
        let survivor = |member: Member| {
            let stat = proc::stat(member.pid).filter(|stat| !b"ZX".contains(&stat.state))?;
            let id = ProcessId { pid: member.pid, start: stat.start };
            Some(Survivor { id, name: stat.name })
        };
        proc::descendants(self.shim).into_iter().filter_map(survivor).collect()
    }

    fn send(&self, member: Member, numbers: &[i32]) {
        if member.parent == self.shim {
            // The pid of a child is its own until it is reaped, which only this thread does.
            let _ = numbers.iter().try_for_each(|number| sys::send(member.pid as i32, *number));
            return;
        }
        // Of others the pid may have gone to somebody else since. The handle holds whoever has it
        // now, and a process with the parent that was seen, or inherited since, is below the shim.
        let Ok(handle) = Handle::open(member.pid) else { return };
        let parent = proc::stat(member.pid).map(|stat| stat.parent);
        if parent == Some(member.parent) || parent == Some(self.shim) {
            let _ = numbers.iter().try_for_each(|number| handle.send(*number));
        }
    }
}
