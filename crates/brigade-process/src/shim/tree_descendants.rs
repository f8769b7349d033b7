//! What came of the command, on Linux: everything below the shim.
//!
//! The shim is the subreaper: what loses its parent becomes its child, whatever session or group it
//! went to. So nothing escapes, and nothing is left when the kernel says that there are no children.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::group;
use super::proc::{self, Member, Stat};
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

/// After this long of stopping what appears, whatever there is is killed. The next call goes on.
const HOLD_BOUND: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(super) struct Tree {
    shim: u32,
    command: u32,
    /// Who was sent TERM. A second one makes some programs give up their tidying.
    asked: Vec<u32>,
    group: Option<PathBuf>,
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

/// Stops everything where it is, until nothing new appears. Some processes start another and end
/// faster than a tree is listed; one that is stopped starts nothing, and keeps its place in the tree.
fn hold(
    walk: impl Fn(&mut dyn FnMut(Member)),
    stop: impl Fn(Member),
    is_alive: impl Fn(u32) -> bool,
) {
    let give_up = Instant::now() + HOLD_BOUND;
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
    proc::stat(pid).is_some_and(|stat| is_living(&stat))
}

/// A process that has ended may still be listed until it is waited for.
fn is_living(stat: &Stat) -> bool {
    !b"ZX".contains(&stat.state)
}

impl Tree {
    pub(super) fn new(command: ProcessId, group: Option<PathBuf>) -> Self {
        Self { shim: std::process::id(), command: command.pid, asked: Vec::new(), group }
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

    /// Kills everything, when nothing of it can start anything more. What is missed is inherited, and
    /// killed by the next call.
    ///
    /// A refusal means that a process has become another user's: it will be named as a survivor.
    /// Those below it are not inherited then, and have to be reached where they are.
    pub(super) fn force(&mut self) {
        if let Some(group) = &self.group {
            // What has left the group is found where it is.
            let _ = group::kill(group);
        }
        let walk = |visit: &mut dyn FnMut(Member)| proc::walk(self.shim, visit);
        hold(walk, |member| self.send(member, &[signal::STOP]), is_alive);
        proc::walk(self.shim, |member| self.send(member, &[signal::KILL]));
    }

    /// Whatever still lives.
    pub(super) fn survivors(&self) -> Vec<Survivor> {
        let survivor = |member: Member| {
            let stat = proc::stat(member.pid).filter(is_living)?;
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
        fn children(&mut self, of: u32) -> Vec<Member> {
            if of == SHIM {
                return self.living.iter().map(|pid| Member { pid: *pid, parent: SHIM }).collect();
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
        let walk = |visit: &mut dyn FnMut(Member)| {
            proc::walk_by(SHIM, |of| chains.borrow_mut().children(of), visit);
        };
        hold(
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
