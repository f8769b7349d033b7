//! The identity of a process: its boot, pid and start time.
//!
//! The system gives the pid of an ended process to another one. Boot, pid and start time together
//! belong to one process only. A process that is to be signalled is held by a pidfd, so that a later
//! owner of its pid is not hit.
//!
//! The shim is compiled alone, so the reader of `/proc/PID/stat` stands in `shim::procfs`. The rest
//! of the workspace reads identities here. Systems without pidfds and `/proc` report no start times.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, test_kill_process};

pub use crate::shim::boot_id::BootId;
#[cfg(full_linux)]
pub(crate) use crate::shim::procfs::{ProcessStat, read_stat, stat_if_readable};
pub use crate::shim::record::ProcessId;

/// Returns the kernel's boot id, mixed with an id of the pid namespace. A restarted container gives
/// the same pids to other processes. Returns zeros if the system has no boot id; then only a shim's
/// lock shows that it is alive.
pub fn read_boot_id() -> io::Result<BootId> {
    #[cfg(full_linux)]
    {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let boot = BootId::parse(text.trim()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the boot id is unreadable")
        })?;
        let pids = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let first = read_stat(1)?.map_or(0, |init| init.start);
        Ok(mix_text(boot, &format!("{} {first}", pids.display())))
    }
    #[cfg(not(full_linux))]
    Ok(BootId([0; 16]))
}

/// Returns the name of this machine.
pub fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the effective user id of this process.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the identity of a process. Returns `None` if it has exited or the system reports no start
/// times.
pub fn identify_process(pid: u32) -> Option<ProcessId> {
    #[cfg(full_linux)]
    return stat_if_readable(pid)
        .filter(|stat| !stat.has_exited())
        .map(|stat| ProcessId { pid, start: stat.start });
    #[cfg(not(full_linux))]
    {
        let _ = pid;
        None
    }
}

/// Returns true if a process that this one may signal has this pid and has not exited.
pub fn is_process_alive(pid: u32) -> bool {
    let exists = parse_pid(pid).is_some_and(|pid| test_kill_process(pid).is_ok());
    exists && !is_zombie(pid)
}

/// Returns true for a process that has exited and was not reaped by its parent.
fn is_zombie(pid: u32) -> bool {
    #[cfg(full_linux)]
    return stat_if_readable(pid).is_some_and(|stat| stat.has_exited());
    #[cfg(not(full_linux))]
    {
        let _ = pid;
        false
    }
}

/// Returns the pids of all visible processes.
pub fn list_pids() -> impl Iterator<Item = u32> {
    #[cfg(full_linux)]
    return crate::shim::procfs::numeric_entries("/proc");
    #[cfg(not(full_linux))]
    std::iter::empty()
}

/// The environment that a process was started with.
#[derive(Debug)]
pub struct ProcessEnvironment(Vec<u8>);

impl ProcessEnvironment {
    pub fn read(pid: u32) -> io::Result<Self> {
        std::fs::read(format!("/proc/{pid}/environ")).map(Self)
    }

    /// Returns all variables as `NAME=VALUE`.
    pub fn variables(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == 0)
    }

    /// Returns the value of a variable.
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.variables().find_map(|variable| {
            variable.strip_prefix(name.as_bytes()).and_then(|value| value.strip_prefix(b"="))
        })
    }
}

/// A process held by a pidfd, so that a later owner of its pid is never signalled.
#[derive(Debug)]
pub struct HeldProcess(OwnedFd);

impl HeldProcess {
    /// Holds the process with this identity, which may have exited. Returns `None` if it was reaped
    /// or the system has no pidfds.
    pub fn open(id: ProcessId) -> io::Result<Option<Self>> {
        #[cfg(full_linux)]
        {
            let Some(pidfd) = open_pidfd(id.pid, rustix::process::PidfdFlags::empty())? else {
                return Ok(None);
            };
            // The pidfd is open, so the start time below belongs to the held process.
            let is_same = read_stat(id.pid)?.is_some_and(|stat| stat.start == id.start);
            Ok(is_same.then_some(Self(pidfd)))
        }
        #[cfg(not(full_linux))]
        {
            let _ = id;
            Ok(None)
        }
    }

    #[cfg(full_linux)]
    pub(crate) fn from_pidfd(pidfd: OwnedFd) -> Self {
        Self(pidfd)
    }

    /// Returns false if the process has exited: its pidfd is readable then.
    pub fn is_alive(&self) -> bool {
        let mut entries = [PollFd::new(&self.0, PollFlags::IN)];
        matches!(poll(&mut entries, Some(&Timespec::default())), Ok(0))
    }

    pub fn send_signal(&self, signal: Signal) -> io::Result<()> {
        #[cfg(full_linux)]
        return Ok(rustix::process::pidfd_send_signal(&self.0, signal)?);
        #[cfg(not(full_linux))]
        {
            let _ = signal;
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Reaps the process if it is an exited child of this one.
    #[cfg(full_linux)]
    pub(crate) fn reap(&self) {
        use std::os::fd::AsFd;

        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::PidFd(self.0.as_fd()), options);
    }
}

/// Opens a pidfd. Returns `None` if no process has the pid.
#[cfg(full_linux)]
pub(crate) fn open_pidfd(
    pid: u32,
    flags: rustix::process::PidfdFlags,
) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = parse_pid(pid) else { return Ok(None) };
    match rustix::process::pidfd_open(pid, flags) {
        Ok(pidfd) => Ok(Some(pidfd)),
        Err(rustix::io::Errno::SRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns `None` for numbers that no process can have.
fn parse_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// Mixes a checksum of the text into the first half.
#[cfg(any(full_linux, test))]
fn mix_text(BootId(mut bytes): BootId, text: &str) -> BootId {
    let sum = crate::shim::fnv::of_bytes(text.as_bytes());
    bytes.iter_mut().zip(sum.to_le_bytes()).for_each(|(byte, other)| *byte ^= other);
    BootId(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_pids_are_another_boot() {
        let boot = BootId([7; 16]);
        assert_ne!(mix_text(boot, "pid:[1] 3"), mix_text(boot, "pid:[1] 4"));
        assert_eq!(mix_text(boot, "pid:[1] 3"), mix_text(boot, "pid:[1] 3"));
    }

    #[cfg(full_linux)]
    #[test]
    fn an_exited_child_is_not_alive_before_it_is_reaped() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("cat starts");
        let id = identify_process(child.id()).expect("the child is alive");
        let held = HeldProcess::open(id).unwrap().expect("the child is not reaped");
        assert!(is_process_alive(id.pid) && held.is_alive());
        let other = ProcessId { start: id.start + 1, ..id };
        assert!(HeldProcess::open(other).unwrap().is_none(), "it has another start time");
        drop(child.stdin.take());
        while held.is_alive() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert!(!is_process_alive(id.pid));
        assert_eq!(identify_process(id.pid), None);
        assert!(HeldProcess::open(id).unwrap().is_some(), "it is not reaped yet");
        child.wait().unwrap();
        assert!(HeldProcess::open(id).unwrap().is_none());
    }

    #[cfg(full_linux)]
    #[test]
    fn an_environment_is_read_by_name() {
        let environment = ProcessEnvironment(b"A=1\0AB=2\0C=\0".to_vec());
        assert_eq!(environment.value("A"), Some(b"1".as_slice()));
        assert_eq!(environment.value("C"), Some(b"".as_slice()));
        assert_eq!(environment.value("B"), None);
        assert!(list_pids().any(|pid| pid == std::process::id()));
    }
}
