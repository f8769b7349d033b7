//! Ends the processes that a dead shim left behind.
//!
//! A running shim inherits every orphan of its process tree, so nothing escapes. If the shim is
//! killed, its children pass to init or to another subreaper. They are found by the mark in their
//! environment. A runtime that saw the shim die also finds them by their OS session. A process that
//! left the session and also cleared its environment is not found.

use std::io;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use crate::process_identity::ProcessId;
use crate::shim::record::Survivor;

/// The environment variable that marks every descendant of a shim.
pub const MARK: &str = "BRIGADE_SHIM";

/// The time limit for finding and killing orphans. Those left then are reported as survivors.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

/// Read-locked during the start of a shim, until its handle exists.
static STARTING: RwLock<()> = RwLock::new(());

pub(crate) fn hold_off_reaping() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// The processes found of a dead shim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrphanReport {
    /// The number of processes at the first scan.
    pub found_count: usize,
    /// The processes that could not be killed.
    pub survivors: Vec<Survivor>,
    /// Orphans of this user that are younger than the shim and hide their environment. They may
    /// belong to the shim or not, so they are not killed.
    pub unidentified: Vec<Survivor>,
}

/// A process whose shim is dead.
#[derive(Clone, Copy, Debug)]
pub struct DeadShim<'a> {
    /// The value of [`MARK`] in the environment of its processes.
    pub mark: &'a str,
    /// The identity of the shim, if its record has it.
    pub shim: Option<ProcessId>,
    /// The leaders of its OS sessions, the shim first. Set it only right after the shim's death:
    /// later their numbers may belong to other sessions.
    pub session_leaders: &'a [ProcessId],
}

/// Kills the orphans of a dead shim. Blocks for up to a few seconds. After an error, nothing is
/// known about remaining processes.
pub fn end_orphans(dead: &DeadShim<'_>) -> io::Result<OrphanReport> {
    #[cfg(full_linux)]
    return linux::end_all(dead);
    #[cfg(not(full_linux))]
    {
        // Nothing is killed, because this system cannot tell to whom a process belongs.
        let _ = (dead, KILL_TIMEOUT);
        Ok(OrphanReport::default())
    }
}

/// Makes this process the parent of the orphans of killed shims. It must then call
/// [`reap_inherited`] regularly.
pub fn inherit_orphans() -> io::Result<()> {
    #[cfg(full_linux)]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Reaps all ended children, whoever started them. Only for a program whose children are all
/// Brigade's. A reaped shim is no loss: its record has the exit status. Does nothing while a shim
/// is starting, because a shim reaped before it is held looks like a failed start.
pub fn reap_inherited() {
    #[cfg(full_linux)]
    if let Ok(_no_shim_starts) = STARTING.try_write() {
        use rustix::process::{WaitOptions, wait};
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

#[cfg(full_linux)]
mod linux {
    use std::fs;
    use std::thread;
    use std::time::Instant;

    use rustix::process::{Signal, getpid};

    use super::{DeadShim, Duration, KILL_TIMEOUT, MARK, OrphanReport, ProcessId, Survivor, io};
    use crate::process_identity::{
        HeldProcess, ProcessEnvironment, ProcessStat, list_pids, read_stat,
    };

    /// The pause between scans: killed processes take a moment to disappear.
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
            for seen in &orphans.ours {
                kill_if_same(seen.id())?;
            }
            thread::sleep(KILL_PAUSE);
        }
    }

    /// A process as a scan saw it.
    struct SeenProcess {
        pid: u32,
        stat: ProcessStat,
    }

    impl SeenProcess {
        fn id(&self) -> ProcessId {
            ProcessId { pid: self.pid, start: self.stat.start }
        }
    }

    #[derive(Default)]
    struct FoundOrphans {
        ours: Vec<SeenProcess>,
        unidentified: Vec<SeenProcess>,
    }

    impl FoundOrphans {
        fn scan(dead: &DeadShim<'_>) -> io::Result<Self> {
            // Read once first, so that an unreadable process table is not mistaken for an empty
            // one.
            fs::read_dir("/proc")?;
            let mut sessions = Vec::new();
            for leader in dead.session_leaders {
                // The number becomes free for another process only when the session is empty.
                if read_stat(leader.pid)?.is_none_or(|stat| stat.start == leader.start) {
                    sessions.push(*leader);
                }
            }
            let mark = format!("{MARK}={}", dead.mark).into_bytes();
            let me = getpid().as_raw_nonzero().get().unsigned_abs();
            let mut found = Self::default();
            for pid in list_pids().filter(|pid| *pid != me) {
                let Some(stat) = read_stat(pid)? else { continue };
                let in_session = sessions
                    .iter()
                    .any(|leader| stat.session == leader.pid && stat.start >= leader.start)
                    && dead.session_leaders.first().is_none_or(|shim| pid != shim.pid);
                if stat.has_exited() && !(in_session && stat.parent == me) {
                    continue;
                }
                match if in_session { MarkCheck::Ours } else { read_mark(pid, &mark)? } {
                    MarkCheck::Ours => found.ours.push(SeenProcess { pid, stat }),
                    MarkCheck::Hidden if is_suspect(dead, pid, &stat) => {
                        found.unidentified.push(SeenProcess { pid, stat })
                    }
                    MarkCheck::Hidden | MarkCheck::Other => {}
                }
            }
            Ok(found)
        }
    }

    /// The mark in the environment of a process.
    enum MarkCheck {
        Ours,
        Other,
        /// Unreadable: the process belongs to another user or hides its environment.
        Hidden,
    }

    fn read_mark(pid: u32, mark: &[u8]) -> io::Result<MarkCheck> {
        match ProcessEnvironment::read(pid) {
            Ok(environment) => {
                let is_ours = environment.variables().any(|variable| variable == mark);
                Ok(if is_ours { MarkCheck::Ours } else { MarkCheck::Other })
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => Err(error),
                Some(libc::EACCES | libc::EPERM) => Ok(MarkCheck::Hidden),
                // The process has disappeared.
                _ => Ok(MarkCheck::Other),
            },
        }
    }

    /// Returns true for an orphan of this user that is younger than the shim. Programs that always
    /// hide their environment, such as key agents, are usually older.
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

    /// Kills this process, not a later owner of its pid. Reaps it if it is a child.
    fn kill_if_same(id: ProcessId) -> io::Result<()> {
        if let Some(held) = HeldProcess::open(id)? {
            // If this process may not kill it, the report names it as a survivor.
            let _ = held.send_signal(Signal::KILL);
            held.reap();
        }
        Ok(())
    }

    fn to_survivor(seen: SeenProcess) -> Survivor {
        Survivor { id: seen.id(), name: seen.stat.name }
    }
}

#[cfg(all(test, full_linux))]
mod tests {
    use std::process::{Child, Command};

    use super::*;
    use crate::process_identity::list_pids;
    use crate::shim::procfs::stat_if_readable;

    /// Starts an unrelated OS session with a child in it.
    fn unrelated_session(mark: &str) -> Child {
        let mut command = Command::new("setsid");
        command
            .args(["sh", "-c", "sleep 30 & exec sleep 30"])
            .env(MARK, mark)
            .spawn()
            .expect("setsid starts")
    }

    /// Waits until both processes of an OS session run, with their environments. Returns its leader.
    fn wait_session_leader(child: &Child) -> ProcessId {
        let leader = child.id();
        let runs = |pid: &u32| {
            let stat = stat_if_readable(*pid);
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            stat.is_some_and(|stat| stat.session == leader && stat.name == "sleep")
                && environment.windows(MARK.len()).any(|part| part == MARK.as_bytes())
        };
        loop {
            let running_count = list_pids().filter(runs).count();
            if let Some(stat) = stat_if_readable(leader).filter(|_| running_count == 2) {
                return ProcessId { pid: leader, start: stat.start };
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_session_with_the_number_of_a_dead_shim_is_not_killed() {
        let mut unrelated = unrelated_session("somebody-else");
        let leader = wait_session_leader(&unrelated);
        let dead = ProcessId { pid: leader.pid, start: leader.start - 1 };
        fn dead_shim<'a>(mark: &'a str, session_leaders: &'a [ProcessId]) -> DeadShim<'a> {
            DeadShim { mark, shim: None, session_leaders }
        }
        assert_eq!(end_orphans(&dead_shim("nobody", &[dead])).unwrap(), OrphanReport::default());
        assert!(unrelated.try_wait().unwrap().is_none(), "it is alive");
        let report = end_orphans(&dead_shim("somebody-else", &[])).unwrap();
        assert_eq!((report.found_count, report.survivors.len()), (2, 0));
        // Reaped here if nobody else did.
        let _ = unrelated.wait();
    }

    #[test]
    fn nothing_is_reaped_while_a_shim_starts() {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let _held = super::hold_off_reaping();
        let mut child = Command::new("true").spawn().unwrap();
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), ended).unwrap();
        super::reap_inherited();
        assert!(child.wait().unwrap().success(), "it is not reaped yet");
    }

    /// Runs one test of this binary alone and as a normal user, because root can read everything.
    fn runs_as_normal_user(test: &str) -> bool {
        const INNER: &str = "BRIGADE_TEST_AS_NORMAL_USER";
        if std::env::var_os(INNER).is_some() {
            return true;
        }
        let program = std::env::current_exe().expect("the path of this program");
        let mut command = match rustix::process::getuid().is_root() {
            true => Command::new("setpriv"),
            false => Command::new("env"),
        };
        if rustix::process::getuid().is_root() {
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        }
        let output = command
            .arg(program)
            .args(["--exact", test])
            .env(INNER, "1")
            .output()
            .expect("setpriv or env starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        false
    }

    #[test]
    fn a_process_that_hides_its_environment_is_reported_and_not_killed() {
        if !runs_as_normal_user(
            "orphans::tests::a_process_that_hides_its_environment_is_reported_and_not_killed",
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
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
        let hidden: u32 = line.trim().parse().unwrap();
        child.wait().unwrap();
        let start = stat_if_readable(hidden).unwrap().start;
        let dead_shim = |start| DeadShim {
            mark: "m",
            shim: Some(ProcessId { pid: 1, start }),
            session_leaders: &[],
        };
        let report = end_orphans(&dead_shim(start)).unwrap();
        let unidentified: Vec<u32> =
            report.unidentified.iter().map(|survivor| survivor.id.pid).collect();
        assert_eq!(unidentified, [hidden]);
        assert!(stat_if_readable(hidden).is_some_and(|stat| !stat.has_exited()), "it is alive");
        assert_eq!(
            end_orphans(&dead_shim(start + 1)).unwrap(),
            OrphanReport::default(),
            "it is older than the shim"
        );
        let pid = i32::try_from(hidden).ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}
