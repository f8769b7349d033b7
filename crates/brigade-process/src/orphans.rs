//! Ending what a dead shim left behind.
//!
//! A shim inherits whatever its command's tree orphans, so while it lives nothing escapes. When it is
//! killed itself, its children go to the nearest process above that inherits orphans, or to init,
//! and have to be looked for: by the session the command was started in, and by the mark in their
//! environment. A process that left the session and also wiped its environment is not found. That is
//! the one gap, and it takes somebody to kill the shim.

use std::time::Duration;

use crate::shim::record::{Record, Survivor};

/// The variable that marks everything a command starts.
pub const MARK: &str = "BRIGADE_SHIM";

/// How long orphans are looked for and killed before the rest is named.
const BOUND: Duration = Duration::from_secs(4);

/// Makes this process inherit what its shims orphan when they are killed. Its own children are left
/// to whoever waits for them: nothing here ever waits for a child that it was not told of.
pub fn inherit_orphans() -> std::io::Result<()> {
    #[cfg(full_linux)]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Kills what is left of a command whose shim is dead, and names what could not be killed. It takes
/// a while; not to be called where nothing may block.
pub fn end_orphans(mark: &str, boot: &[u8; 16], record: Option<&Record>) -> Vec<Survivor> {
    // The pids in a record of another boot are somebody else's by now.
    let record = record.filter(|record| record.boot == *boot);
    #[cfg(full_linux)]
    return linux::end(mark, record);
    #[cfg(not(full_linux))]
    portable::end(mark, record)
}

#[cfg(full_linux)]
mod linux {
    use std::fs;
    use std::thread;
    use std::time::Instant;

    use rustix::process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal,
        waitid,
    };
    use std::os::fd::AsFd;

    use super::{BOUND, Duration, MARK, Record, Survivor};
    use crate::shim::proc::{self, Stat};
    use crate::shim::record::ProcessId;

    /// Killed processes take a moment to go.
    const PAUSE: Duration = Duration::from_millis(2);

    pub(super) fn end(mark: &str, record: Option<&Record>) -> Vec<Survivor> {
        let deadline = Instant::now() + BOUND;
        let mark = format!("{MARK}={mark}").into_bytes();
        loop {
            let found: Vec<_> = orphans(&mark, record).collect();
            if found.is_empty() || Instant::now() > deadline {
                return found.into_iter().map(survivor).collect();
            }
            for (pid, stat) in &found {
                kill(*pid, stat.start);
            }
            thread::sleep(PAUSE);
        }
    }

    fn orphans<'a>(
        mark: &'a [u8],
        record: Option<&'a Record>,
    ) -> impl Iterator<Item = (u32, Stat)> + 'a {
        let me = getpid().as_raw_nonzero().get().unsigned_abs();
        let pids = proc::numbers_in("/proc").filter(move |pid| *pid != me);
        let living = pids.filter_map(|pid| Some((pid, proc::stat(pid)?)));
        living.filter(move |(pid, stat)| {
            let dead = stat.state == b'Z' && stat.parent != me;
            !dead && (in_session(record, stat) || is_marked(*pid, mark))
        })
    }

    /// A session's id is free again only when its last process is gone, so whatever bears that of
    /// the shim and is not older than it belongs to it.
    fn in_session(record: Option<&Record>, stat: &Stat) -> bool {
        record.is_some_and(|record| {
            stat.session == record.shim.pid && stat.start >= record.shim.start
        })
    }

    fn is_marked(pid: u32, mark: &[u8]) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark)
    }

    /// Kills the process that was seen, not one that has its pid now, and reaps it if it is ours.
    fn kill(pid: u32, start: u64) {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        let Ok(held) = pidfd_open(raw, PidfdFlags::empty()) else { return };
        if proc::stat(pid).is_none_or(|stat| stat.start != start) {
            return;
        }
        // Without the right to kill it, it will be named.
        let _ = pidfd_send_signal(&held, Signal::KILL);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::PidFd(held.as_fd()), options);
    }

    fn survivor((pid, stat): (u32, Stat)) -> Survivor {
        Survivor { id: ProcessId { pid, start: stat.start }, name: stat.name }
    }
}

#[cfg(not(full_linux))]
mod portable {
    use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

    use super::{BOUND, Duration, Record, Survivor};

    /// The process group of the command is all that can be found again.
    pub(super) fn end(_mark: &str, record: Option<&Record>) -> Vec<Survivor> {
        let Some(command) = record.and_then(|record| record.command) else { return Vec::new() };
        let Some(group) = i32::try_from(command.pid).ok().and_then(Pid::from_raw) else {
            return Vec::new();
        };
        let pause = Duration::from_millis(10);
        for _ in 0..BOUND.as_millis() / pause.as_millis() {
            let _ = kill_process_group(group, Signal::KILL);
            if test_kill_process_group(group).is_err() {
                return Vec::new();
            }
            std::thread::sleep(pause);
        }
        vec![Survivor { id: command, name: "process group".to_owned() }]
    }
}
