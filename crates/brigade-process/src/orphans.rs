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
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

/// Held by whoever starts a shim, until that is held itself.
static STARTING: RwLock<()> = RwLock::new(());

pub(crate) fn hold_off_reaping() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// What was found of a command whose shim is dead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrphanReport {
    /// How many processes there were at the first look.
    pub found_count: usize,
    /// Those that could not be killed.
    pub survivors: Vec<Survivor>,
    /// Orphans of this user that are younger than the shim and hide their environment: they may belong
    /// to it or not, and are left alone.
    pub unidentified: Vec<Survivor>,
}

/// A command whose shim is dead.
#[derive(Clone, Copy, Debug)]
pub struct DeadShim<'a> {
    /// The value of [`MARK`] in its processes.
    pub mark: &'a str,
    /// The shim itself, as far as its record tells.
    pub shim: Option<ProcessId>,
    /// Who led its sessions, the shim first: only for whoever saw it die just now, because later their
    /// numbers may be other sessions'.
    pub session_leaders: &'a [ProcessId],
}

/// Kills what is left of a command whose shim is dead. It takes a while; not to be called where nothing
/// may block. An error means that it could not be looked, and says nothing of what there is.
pub fn end_orphans(dead: &DeadShim<'_>) -> io::Result<OrphanReport> {
    #[cfg(full_linux)]
    return linux::end_all(dead);
    #[cfg(not(full_linux))]
    {
        // Without a way to tell whose a process is, nothing is killed.
        let _ = (dead, KILL_TIMEOUT);
        Ok(OrphanReport::default())
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

    use super::{DeadShim, Duration, KILL_TIMEOUT, MARK, OrphanReport, ProcessId, Survivor, io};
    use crate::shim::procfs::{ProcessStat, numeric_entries, read_stat};

    /// Killed processes take a moment to go.
    const KILL_PAUSE: Duration = Duration::from_millis(2);

    pub(super) fn end_all(dead: &DeadShim<'_>) -> io::Result<OrphanReport> {
        let deadline = Instant::now() + KILL_TIMEOUT;
        let mut found = None;
        loop {
            let orphans = FoundOrphans::scan(dead)?;
            let found = *found.get_or_insert(orphans.ours.len());
            if orphans.ours.is_empty() || Instant::now() > deadline {
                return Ok(OrphanReport {
                    found_count: found,
                    survivors: orphans.ours.into_iter().map(to_survivor).collect(),
                    unidentified: orphans.unidentified.into_iter().map(to_survivor).collect(),
                });
            }
            for (pid, stat) in &orphans.ours {
                kill_if_same(*pid, stat.start)?;
            }
            thread::sleep(KILL_PAUSE);
        }
    }

    #[derive(Default)]
    struct FoundOrphans {
        ours: Vec<(u32, ProcessStat)>,
        unidentified: Vec<(u32, ProcessStat)>,
    }

    impl FoundOrphans {
        fn scan(dead: &DeadShim<'_>) -> io::Result<Self> {
            // Read once, so that a table that cannot be read is not taken for an empty one.
            fs::read_dir("/proc")?;
            let mut sessions = Vec::new();
            for leader in dead.session_leaders {
                // Its number is free for another process only when its session is empty.
                if read_stat(leader.pid)?.is_none_or(|stat| stat.start == leader.start) {
                    sessions.push(*leader);
                }
            }
            let mark = format!("{MARK}={}", dead.mark).into_bytes();
            let me = getpid().as_raw_nonzero().get().unsigned_abs();
            let mut found = Self::default();
            for pid in numeric_entries("/proc").filter(|pid| *pid != me) {
                let Some(stat) = read_stat(pid)? else { continue };
                let in_session = sessions
                    .iter()
                    .any(|leader| stat.session == leader.pid && stat.start >= leader.start)
                    && dead.session_leaders.first().is_none_or(|shim| pid != shim.pid);
                if matches!(stat.state, b'Z' | b'X') && !(in_session && stat.parent == me) {
                    continue;
                }
                match if in_session { MarkCheck::Ours } else { read_mark(pid, &mark)? } {
                    MarkCheck::Ours => found.ours.push((pid, stat)),
                    MarkCheck::Hidden if is_suspect(dead, pid, &stat) => {
                        found.unidentified.push((pid, stat))
                    }
                    MarkCheck::Hidden | MarkCheck::Other => {}
                }
            }
            Ok(found)
        }
    }

    /// What the environment of a process says.
    enum MarkCheck {
        Ours,
        Other,
        /// It may not be read: another user's, or one that hides it.
        Hidden,
    }

    fn read_mark(pid: u32, mark: &[u8]) -> io::Result<MarkCheck> {
        match fs::read(format!("/proc/{pid}/environ")) {
            Ok(environment) => {
                let is_ours = environment.split(|byte| *byte == 0).any(|variable| variable == mark);
                Ok(if is_ours { MarkCheck::Ours } else { MarkCheck::Other })
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => Err(error),
                Some(libc::EACCES | libc::EPERM) => Ok(MarkCheck::Hidden),
                // Gone since.
                _ => Ok(MarkCheck::Other),
            },
        }
    }

    /// A process of this user that lost its parent and is younger than the shim. A program that hides
    /// its environment from the start, as an agent for keys does, has usually been there before.
    fn is_suspect(dead: &DeadShim<'_>, pid: u32, stat: &ProcessStat) -> bool {
        let me = getpid().as_raw_nonzero().get().unsigned_abs();
        let is_orphan = stat.parent == 1 || stat.parent == me;
        is_orphan && dead.shim.is_some_and(|shim| stat.start >= shim.start) && is_own_users(pid)
    }

    fn is_own_users(pid: u32) -> bool {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let user = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        user == Some(rustix::process::getuid().as_raw())
    }

    /// Kills the process that was seen, not one that has its pid now, and reaps it if it is ours.
    fn kill_if_same(pid: u32, start: u64) -> io::Result<()> {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        let held = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(held) => held,
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if read_stat(pid)?.is_none_or(|stat| stat.start != start) {
            return Ok(());
        }
        // Without the right to kill it, it will be named.
        let _ = pidfd_send_signal(&held, Signal::KILL);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::PidFd(held.as_fd()), options);
        Ok(())
    }

    fn to_survivor((pid, stat): (u32, ProcessStat)) -> Survivor {
        Survivor { id: ProcessId { pid, start: stat.start }, name: stat.name }
    }
}

#[cfg(all(test, full_linux))]
mod tests {
    use std::process::{Child, Command};

    use super::*;
    use crate::shim::procfs::stat_if_readable;

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
            if let Some(stat) =
                stat_if_readable(pid).filter(|stat| stat.session == pid && stat.name == "sleep")
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
        fn of<'a>(mark: &'a str, died_now: &'a [ProcessId]) -> DeadShim<'a> {
            DeadShim { mark, shim: None, session_leaders: died_now }
        }
        assert_eq!(end_orphans(&of("nobody", &[dead])).unwrap(), OrphanReport::default());
        assert!(stranger.try_wait().unwrap().is_none(), "it lives");
        let remains = end_orphans(&of("somebody-else", &[])).unwrap();
        assert_eq!((remains.found_count, remains.survivors.len()), (2, 0));
        // Reaped here if it was ours to reap; gone in any case.
        let _ = stranger.wait();
    }

    #[test]
    fn nothing_is_reaped_while_a_shim_is_being_started() {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let _held = super::hold_off_reaping();
        let mut child = Command::new("true").spawn().unwrap();
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), ended).unwrap();
        super::reap_inherited();
        assert!(child.wait().unwrap().success(), "it is still there to be waited for");
    }

    /// Runs one test of this binary by itself and as a normal user: root may look at everything.
    fn runs_as_normal_user(test: &str) -> bool {
        const INNER: &str = "BRIGADE_TEST_AS_NORMAL_USER";
        if std::env::var_os(INNER).is_some() {
            return true;
        }
        let program = std::env::current_exe().expect("this program");
        let mut command = match rustix::process::getuid().is_root() {
            true => Command::new("setpriv"),
            false => Command::new("env"),
        };
        if rustix::process::getuid().is_root() {
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        }
        let ran = command
            .arg(program)
            .args(["--exact", test])
            .env(INNER, "1")
            .output()
            .expect("setpriv or env");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
        false
    }

    #[test]
    fn a_process_that_hides_its_environment_is_named_and_left_alone() {
        if !runs_as_normal_user(
            "orphans::tests::a_process_that_hides_its_environment_is_named_and_left_alone",
        ) {
            return;
        }
        inherit_orphans().unwrap();
        let hide = "import ctypes, os, sys, time\n\
            if os.fork(): sys.exit()\n\
            ctypes.CDLL(None).prctl(4, 0)\n\
            print(os.getpid(), flush=True)\n\
            time.sleep(60)";
        let mut command = Command::new("python3");
        let mut child =
            command.args(["-c", hide]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        let hidden: u32 = line.trim().parse().unwrap();
        child.wait().unwrap();
        let start = stat_if_readable(hidden).unwrap().start;
        let of = |start| DeadShim {
            mark: "m",
            shim: Some(ProcessId { pid: 1, start }),
            session_leaders: &[],
        };
        let remains = end_orphans(&of(start)).unwrap();
        let unknown: Vec<u32> = remains.unidentified.iter().map(|one| one.id.pid).collect();
        assert_eq!(unknown, [hidden]);
        assert!(stat_if_readable(hidden).is_some_and(|stat| stat.state != b'Z'), "it lives");
        assert_eq!(
            end_orphans(&of(start + 1)).unwrap(),
            OrphanReport::default(),
            "it was there before"
        );
        let pid = i32::try_from(hidden).ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}
