//! The process tree on Linux: all descendants of the shim.
//!
//! The shim is the subreaper: an orphan becomes its child, whatever its session or group. So
//! nothing escapes, and the tree is empty when the kernel reports no children.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::cgroup;
use super::procfs::{self, TreeMember};
use super::record::{ProcessExit, ProcessId, Survivor};
use super::signals;
use super::sys::{self, ChildrenState, ProcessHandle, signal};

pub(super) use super::procfs::own_id;

/// False: every ended process is a child of the shim by then, and causes a signal.
pub(super) const NEEDS_POLLING: bool = false;

/// The number of TERM rounds. One round may miss a process whose parent ends meanwhile.
const TERM_ROUNDS: usize = 3;

/// The most children to reap at once, because some processes fork as fast as they are reaped.
const REAP_BATCH: usize = 1_000;

/// The time limit for stopping new processes before all are killed. The next call continues.
const STOP_TIMEOUT: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(super) struct ProcessTree {
    shim: u32,
    command: u32,
    /// The pids that got TERM. A second TERM makes some programs abort their cleanup.
    sent_term: Vec<u32>,
    group: Option<PathBuf>,
}

/// The state of the tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TreeStatus {
    /// The process has exited but is not reaped, so that its exit can be recorded first.
    CommandExited(ProcessExit),
    Alive,
    Empty,
}

/// Closes inherited descriptors from `spare` on, and becomes the subreaper.
pub(super) fn prepare(spare: u32) {
    sys::close_inherited(spare);
    sys::inherit_orphans();
}

pub(super) fn start_time(pid: u32) -> u64 {
    procfs::stat_if_readable(pid).map_or(0, |stat| stat.start)
}

/// Stops all processes until no new one appears. Some fork and end faster than a tree can be
/// listed. A stopped process starts nothing, and keeps its place in the tree.
fn stop_until_quiet(
    walk: impl Fn(&mut dyn FnMut(TreeMember)),
    stop: impl Fn(TreeMember),
    is_alive: impl Fn(u32) -> bool,
) {
    let deadline = Instant::now() + STOP_TIMEOUT;
    let mut known = HashSet::new();
    loop {
        let mut fresh = Vec::new();
        walk(&mut |member| {
            if known.insert(member.pid) {
                stop(member);
                fresh.push(member.pid);
            }
        });
        // An ended process starts nothing either.
        let is_quiet = !fresh.into_iter().any(&is_alive);
        if is_quiet || Instant::now() > deadline {
            return;
        }
    }
}

fn is_alive(pid: u32) -> bool {
    procfs::stat_if_readable(pid).is_some_and(|stat| !stat.has_exited())
}

impl ProcessTree {
    pub(super) fn new(command: ProcessId, group: Option<PathBuf>) -> Self {
        Self { shim: std::process::id(), command: command.pid, sent_term: Vec::new(), group }
    }

    /// Reaps ended orphans, up to the process itself.
    pub(super) fn reap_ended(&mut self) -> TreeStatus {
        for _ in 0..REAP_BATCH {
            match sys::peek_ended_child() {
                ChildrenState::Ended(pid, exit) if pid == self.command => {
                    return TreeStatus::CommandExited(exit);
                }
                ChildrenState::Ended(pid, _) => sys::reap(pid),
                ChildrenState::Alive => return TreeStatus::Alive,
                ChildrenState::None => return TreeStatus::Empty,
            }
        }
        signals::note_signal(signal::CHLD);
        TreeStatus::Alive
    }

    /// Reaps the process. Its pid may belong to another process afterwards.
    ///
    /// Its descendants may get TERM again. A shell that is starting a program takes a signal for
    /// itself, and the program never gets it.
    pub(super) fn reap_command(&mut self) {
        sys::reap(self.command);
        self.sent_term.clear();
    }

    /// Sends TERM to all processes that have not got it, and CONT, because TERM stays pending in a
    /// stopped process.
    pub(super) fn terminate(&mut self) {
        for _ in 0..TERM_ROUNDS {
            let mut unsignalled = procfs::descendants(self.shim);
            unsignalled.retain(|member| !self.sent_term.contains(&member.pid));
            if unsignalled.is_empty() {
                return;
            }
            for member in unsignalled {
                self.sent_term.push(member.pid);
                self.send_signals(member, &[signal::TERM, signal::CONT]);
            }
        }
    }

    /// Kills all processes, after they were stopped. A missed process becomes a child of the shim,
    /// and the next call kills it.
    ///
    /// If a kill is refused, the process has another user and will be reported as a survivor. Its
    /// descendants are not inherited, so they are killed in place.
    pub(super) fn kill(&mut self) {
        if let Some(group) = &self.group {
            // Processes that left the group are found in the tree.
            let _ = cgroup::kill_group(group);
        }
        let walk = |visit: &mut dyn FnMut(TreeMember)| procfs::walk_descendants(self.shim, visit);
        stop_until_quiet(walk, |member| self.send_signals(member, &[signal::STOP]), is_alive);
        procfs::walk_descendants(self.shim, |member| self.send_signals(member, &[signal::KILL]));
    }

    /// Returns the processes that are still alive.
    pub(super) fn survivors(&self) -> Vec<Survivor> {
        let survivor = |member: TreeMember| {
            let stat = procfs::stat_if_readable(member.pid).filter(|stat| !stat.has_exited())?;
            let id = ProcessId { pid: member.pid, start: stat.start };
            Some(Survivor { id, name: stat.name })
        };
        procfs::descendants(self.shim).into_iter().filter_map(survivor).collect()
    }

    fn send_signals(&self, member: TreeMember, numbers: &[i32]) {
        if member.parent == self.shim {
            // A child owns its pid until it is reaped, and only this thread reaps.
            let _ =
                numbers.iter().try_for_each(|number| sys::send_signal(member.pid as i32, *number));
            return;
        }
        // The pid of another process may have a new owner. The handle holds the current owner. A
        // process whose parent is the one seen before, or the shim, is in the tree.
        let Ok(handle) = ProcessHandle::open(member.pid) else { return };
        let parent = procfs::stat_if_readable(member.pid).map(|stat| stat.parent);
        if parent == Some(member.parent) || parent == Some(self.shim) {
            let _ = numbers.iter().try_for_each(|number| handle.send_signal(*number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const SHIM: u32 = 1;

    /// Chains of processes: each starts the next one and ends, unless it is stopped.
    struct Chains {
        alive: Vec<u32>,
        stopped: HashSet<u32>,
        next: u32,
    }

    impl Chains {
        /// Returns the current children of the shim. Inspecting another process takes longer than a
        /// chain's process lives.
        fn children(&mut self, parent: u32) -> Vec<TreeMember> {
            if parent == SHIM {
                return self
                    .alive
                    .iter()
                    .map(|pid| TreeMember { pid: *pid, parent: SHIM })
                    .collect();
            }
            for pid in self.alive.iter_mut().filter(|pid| !self.stopped.contains(pid)) {
                self.next += 1;
                *pid = self.next;
            }
            Vec::new()
        }
    }

    #[test]
    fn forking_processes_are_stopped_as_soon_as_they_are_found() {
        let alive: Vec<u32> = (2..252).collect();
        let chains = RefCell::new(Chains { alive, stopped: HashSet::new(), next: 1_000 });
        let walk = |visit: &mut dyn FnMut(TreeMember)| {
            procfs::walk_descendants_with(
                SHIM,
                |parent| chains.borrow_mut().children(parent),
                visit,
            );
        };
        stop_until_quiet(
            walk,
            |member| {
                chains.borrow_mut().stopped.insert(member.pid);
            },
            |pid| chains.borrow().alive.contains(&pid),
        );
        let chains = chains.into_inner();
        assert!(chains.alive.iter().all(|pid| chains.stopped.contains(pid)));
        assert_eq!(chains.next, 1_000, "no chain continued");
    }
}
