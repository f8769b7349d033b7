//! Ending what a dead shim left behind.
//!
//! A shim inherits whatever its command's tree orphans, so while it lives nothing escapes. When it is
//! killed itself, its children go to init (or to whoever inherits orphans above) and have to be
//! looked for: by the mark in their environment, and, by a runtime that saw the shim die, by the
//! session they were started in. A process that left the session and also wiped its environment is
//! not found. That is the one gap, and it takes somebody to kill the shim.

use std::io;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use crate::shim::record::{ProcessId, Survivor};

/// The variable that marks everything a command starts.
pub const MARK: &str = "BRIGADE_SHIM";

/// How long orphans are looked for and killed before the rest is named.
const BOUND: Duration = Duration::from_secs(3);

/// Held by whoever starts a shim, until that is held itself.
static STARTING: RwLock<()> = RwLock::new(());

pub(crate) fn starting() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// What was found of a command whose shim is dead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// How many processes there were at the first look.
    pub found: usize,
    /// Those that could not be killed.
    pub survivors: Vec<Survivor>,
}

/// Kills what is left of a command whose shim is dead. Whoever saw it die just now gives those that
/// led its sessions, the shim first: later their numbers may be other sessions'. It takes a while; not
/// to be called where nothing may block. An error means that it could not be looked, and says nothing
/// of what there is.
pub fn end_orphans(mark: &str, died_now: &[ProcessId]) -> io::Result<Remains> {
    #[cfg(full_linux)]
    return linux::end(mark, died_now);
    #[cfg(not(full_linux))]
    {
        // Without a way to tell whose a process is, nothing is killed.
        let _ = (mark, died_now, BOUND);
        Ok(Remains::default())
    }
}

/// Makes this process the parent of what its shims orphan when they are killed. It then has to call
/// [`reap_inherited`] now and again.
pub fn inherit_orphans() -> io::Result<()> {
    #[cfg(full_linux)]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Waits for children that have ended, whoever started them: only for a program whose children are
/// all Brigade's. A shim that is reaped here is no loss, since its record tells how it ended. While one
/// is being started nothing is done: a shim that is gone before it is held would pass for one that
/// could not be started.
pub fn reap_inherited() {
    #[cfg(full_linux)]
    if let Ok(_nobody_starts) = STARTING.try_write() {
        use rustix::process::{WaitOptions, wait};
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

#[cfg(full_linux)]
mod linux {
    use std::fs;
    use std::os::fd::AsFd;
    use std::thread;
    use std::time::Instant;

    use rustix::process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal,
        waitid,
    };

    use super::{BOUND, Duration, MARK, ProcessId, Remains, Survivor, io};
    use crate::shim::proc::{Stat, look, numbers_in};

    /// Killed processes take a moment to go.
    const PAUSE: Duration = Duration::from_millis(2);

    pub(super) fn end(mark: &str, died_now: &[ProcessId]) -> io::Result<Remains> {
        let deadline = Instant::now() + BOUND;
        let mark = format!("{MARK}={mark}").into_bytes();
        let mut found = None;
        loop {
            let orphans = orphans(&mark, died_now)?;
            let found = *found.get_or_insert(orphans.len());
            if orphans.is_empty() || Instant::now() > deadline {
                let survivors = orphans.into_iter().map(survivor).collect();
                return Ok(Remains { found, survivors });
            }
            for (pid, stat) in &orphans {
                kill(*pid, stat.start)?;
            }
            thread::sleep(PAUSE);
        }
    }

    fn orphans(mark: &[u8], died_now: &[ProcessId]) -> io::Result<Vec<(u32, Stat)>> {
        // Read once, so that a table that cannot be read is not taken for an empty one.
        fs::read_dir("/proc")?;
        let mut sessions = Vec::new();
        for leader in died_now {
            // Its number is free for another process only when its session is empty.
            if look(leader.pid)?.is_none_or(|stat| stat.start == leader.start) {
                sessions.push(*leader);
            }
        }
        let me = getpid().as_raw_nonzero().get().unsigned_abs();
        let mut found = Vec::new();
        for pid in numbers_in("/proc").filter(|pid| *pid != me) {
            let Some(stat) = look(pid)? else { continue };
            let ours = sessions
                .iter()
                .any(|leader| stat.session == leader.pid && stat.start >= leader.start)
                && died_now.first().is_none_or(|shim| pid != shim.pid);
            let dead = matches!(stat.state, b'Z' | b'X') && !(ours && stat.parent == me);
            if !dead && (ours || is_marked(pid, mark)?) {
                found.push((pid, stat));
            }
        }
        Ok(found)
    }

    fn is_marked(pid: u32, mark: &[u8]) -> io::Result<bool> {
        match fs::read(format!("/proc/{pid}/environ")) {
            Ok(environment) => {
                Ok(environment.split(|byte| *byte == 0).any(|variable| variable == mark))
            }
            // Another user's, or gone since.
            Err(error) => match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => Err(error),
                _ => Ok(false),
            },
        }
    }

    /// Kills the process that was seen, not one that has its pid now, and reaps it if it is ours.
    fn kill(pid: u32, start: u64) -> io::Result<()> {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        let held = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(held) => held,
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if look(pid)?.is_none_or(|stat| stat.start != start) {
            return Ok(());
        }
        // Without the right to kill it, it will be named.
        let _ = pidfd_send_signal(&held, Signal::KILL);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::PidFd(held.as_fd()), options);
        Ok(())
    }

    fn survivor((pid, stat): (u32, Stat)) -> Survivor {
        Survivor { id: ProcessId { pid, start: stat.start }, name: stat.name }
    }
}

#[cfg(all(test, full_linux))]
mod tests {
    use std::process::{Child, Command};

    use super::*;
    use crate::shim::proc::stat;

    /// A session that has nothing to do with us, with a child in it.
    fn stranger(mark: &str) -> Child {
        let mut command = Command::new("setsid");
        command
            .args(["sh", "-c", "sleep 30 & exec sleep 30"])
            .env(MARK, mark)
            .spawn()
            .expect("a process")
    }

    fn leads_a_session(child: &Child) -> ProcessId {
        let pid = child.id();
        loop {
            if let Some(stat) = stat(pid).filter(|stat| stat.session == pid && stat.name == "sleep")
            {
                return ProcessId { pid, start: stat.start };
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_session_that_has_the_number_of_a_dead_shim_is_left_alone() {
        let mut stranger = stranger("somebody-else");
        let theirs = leads_a_session(&stranger);
        let dead = ProcessId { pid: theirs.pid, start: theirs.start - 1 };
        assert_eq!(end_orphans("nobody", &[dead]).unwrap(), Remains::default());
        assert!(stranger.try_wait().unwrap().is_none(), "it lives");
        let remains = end_orphans("somebody-else", &[]).unwrap();
        assert_eq!((remains.found, remains.survivors.len()), (2, 0));
        // Reaped here if it was ours to reap; gone in any case.
        let _ = stranger.wait();
    }

    #[test]
    fn nothing_is_reaped_while_a_shim_is_being_started() {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let _held = super::starting();
        let mut child = Command::new("true").spawn().unwrap();
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), ended).unwrap();
        super::reap_inherited();
        assert!(child.wait().unwrap().success(), "it is still there to be waited for");
    }
}
