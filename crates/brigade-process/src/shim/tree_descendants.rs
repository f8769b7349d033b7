//! What came of the command, on Linux: everything below the shim.
//!
//! The shim is the subreaper: what loses its parent becomes its child, whatever session or group it
//! went to. So nothing escapes, and nothing is left when the kernel says that there are no children.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::cgroup;
use super::procfs::{self, ProcessStat, TreeMember};
use super::record::{ProcessExit, ProcessId, Survivor};
use super::signals;
use super::sys::{self, ChildrenState, ProcessHandle, signal};

pub(super) use super::procfs::own_id;

/// All that ends is a child of the shim by then, and a signal tells of it.
pub(super) const NEEDS_POLLING: bool = false;

/// Rounds of asking. A process whose parent ends while the tree is listed may be missed in one.
const TERM_ROUNDS: usize = 3;

/// Children reaped before anything else gets its turn: some breed as fast as they are reaped.
const REAP_BATCH: usize = 1_000;

/// After this long of stopping what appears, whatever there is is killed. The next call goes on.
const STOP_TIMEOUT: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(super) struct ProcessTree {
    shim: u32,
    command: u32,
    /// Who was sent TERM. A second one makes some programs give up their tidying.
    sent_term: Vec<u32>,
    group: Option<PathBuf>,
}

/// What is left of the tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TreeStatus {
    /// The command has ended so and waits for `reap`: the ending is to be written first.
    CommandExited(ProcessExit),
    Alive,
    Empty,
}

/// Descriptors below `spare` are the shim's, whoever left them open.
pub(super) fn prepare(spare: u32) {
    sys::close_inherited(spare);
    sys::inherit_orphans();
}

pub(super) fn start_time(pid: u32) -> u64 {
    procfs::stat_if_readable(pid).map_or(0, |stat| stat.start)
}

/// Stops everything where it is, until nothing new appears. Some processes start another and end
/// faster than a tree is listed; one that is stopped starts nothing, and keeps its place in the tree.
fn stop_until_quiet(
    walk: impl Fn(&mut dyn FnMut(TreeMember)),
    stop: impl Fn(TreeMember),
    is_alive: impl Fn(u32) -> bool,
) {
    let give_up = Instant::now() + STOP_TIMEOUT;
    let mut known = HashSet::new();
    loop {
        let mut fresh = Vec::new();
        walk(&mut |member| {
            if known.insert(member.pid) {
                stop(member);
                fresh.push(member.pid);
            }
        });
        // What has ended starts nothing either.
        let is_quiet = !fresh.into_iter().any(&is_alive);
        if is_quiet || Instant::now() > give_up {
            return;
        }
    }
}

fn is_alive(pid: u32) -> bool {
    procfs::stat_if_readable(pid).is_some_and(|stat| is_running(&stat))
}

/// A process that has ended may still be listed until it is waited for.
fn is_running(stat: &ProcessStat) -> bool {
    !b"ZX".contains(&stat.state)
}

impl ProcessTree {
    pub(super) fn new(command: ProcessId, group: Option<PathBuf>) -> Self {
        Self { shim: std::process::id(), command: command.pid, sent_term: Vec::new(), group }
    }

    /// Reaps what was inherited and has ended, up to the command itself.
    pub(super) fn reap_ended(&mut self) -> TreeStatus {
        for _ in 0..REAP_BATCH {
            match sys::peek_ended_child() {
                ChildrenState::Ended(pid, ending) if pid == self.command => {
                    return TreeStatus::CommandExited(ending);
                }
                ChildrenState::Ended(pid, _) => sys::reap(pid),
                ChildrenState::Alive => return TreeStatus::Alive,
                ChildrenState::None => return TreeStatus::Empty,
            }
        }
        signals::note_signal(signal::CHLD);
        TreeStatus::Alive
    }

    /// Reaps the command, after which its pid may belong to another process.
    ///
    /// What it leaves behind may be asked again: a shell that is just starting a program takes a
    /// signal for itself, and the program never hears of it.
    pub(super) fn reap_command(&mut self) {
        sys::reap(self.command);
        self.sent_term.clear();
    }

    /// Asks everything that was not asked yet to end. TERM stays pending in a stopped process, so
    /// it is continued as well.
    pub(super) fn terminate(&mut self) {
        for _ in 0..TERM_ROUNDS {
            let mut unasked = procfs::descendants(self.shim);
            unasked.retain(|member| !self.sent_term.contains(&member.pid));
            if unasked.is_empty() {
                return;
            }
            for member in unasked {
                self.sent_term.push(member.pid);
                self.send_signals(member, &[signal::TERM, signal::CONT]);
            }
        }
    }

    /// Kills everything, when nothing of it can start anything more. What is missed is inherited, and
    /// killed by the next call.
    ///
    /// A refusal means that a process has become another user's: it will be named as a survivor.
    /// Those below it are not inherited then, and have to be reached where they are.
    pub(super) fn kill(&mut self) {
        if let Some(group) = &self.group {
            // What has left the group is found where it is.
            let _ = cgroup::kill_group(group);
        }
        let walk = |visit: &mut dyn FnMut(TreeMember)| procfs::walk_descendants(self.shim, visit);
        stop_until_quiet(walk, |member| self.send_signals(member, &[signal::STOP]), is_alive);
        procfs::walk_descendants(self.shim, |member| self.send_signals(member, &[signal::KILL]));
    }

    /// Whatever still lives.
    pub(super) fn survivors(&self) -> Vec<Survivor> {
        let survivor = |member: TreeMember| {
            let stat = procfs::stat_if_readable(member.pid).filter(is_running)?;
            let id = ProcessId { pid: member.pid, start: stat.start };
            Some(Survivor { id, name: stat.name })
        };
        procfs::descendants(self.shim).into_iter().filter_map(survivor).collect()
    }

    fn send_signals(&self, member: TreeMember, numbers: &[i32]) {
        if member.parent == self.shim {
            // The pid of a child is its own until it is reaped, which only this thread does.
            let _ =
                numbers.iter().try_for_each(|number| sys::send_signal(member.pid as i32, *number));
            return;
        }
        // Of others the pid may have gone to somebody else since. The handle holds whoever has it
        // now, and a process with the parent that was seen, or inherited since, is below the shim.
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

    /// Chains of processes below a shim, each of one that starts the next and ends, unless it is stopped.
    struct Chains {
        living: Vec<u32>,
        stopped: HashSet<u32>,
        next: u32,
    }

    impl Chains {
        /// Those of the shim as they are now. To look at any other process takes longer than they live.
        fn children(&mut self, of: u32) -> Vec<TreeMember> {
            if of == SHIM {
                return self
                    .living
                    .iter()
                    .map(|pid| TreeMember { pid: *pid, parent: SHIM })
                    .collect();
            }
            for pid in self.living.iter_mut().filter(|pid| !self.stopped.contains(pid)) {
                self.next += 1;
                *pid = self.next;
            }
            Vec::new()
        }
    }

    #[test]
    fn what_breeds_is_stopped_as_soon_as_it_is_found() {
        let living: Vec<u32> = (2..252).collect();
        let chains = RefCell::new(Chains { living, stopped: HashSet::new(), next: 1_000 });
        let walk = |visit: &mut dyn FnMut(TreeMember)| {
            procfs::walk_descendants_with(SHIM, |of| chains.borrow_mut().children(of), visit);
        };
        stop_until_quiet(
            walk,
            |member| {
                chains.borrow_mut().stopped.insert(member.pid);
            },
            |pid| chains.borrow().living.contains(&pid),
        );
        let chains = chains.into_inner();
        assert!(chains.living.iter().all(|pid| chains.stopped.contains(pid)));
        assert_eq!(chains.next, 1_000, "nothing had the time to go on");
    }
}
