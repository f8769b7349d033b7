//! Supervises MCP server processes: their tasks, their shutdown, and a pid file for each.
//!
//! A killed runtime stops no server, and some servers do not end with their input. The next runtime
//! with the same directory therefore kills the processes whose pid files are left.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[derive(Clone, Debug, Default)]
pub(super) struct ServerProcesses {
    pub(super) tasks: TaskTracker,
    pub(super) shutdown_token: CancellationToken,
    pub(super) pid_registry: Option<Arc<PidRegistry>>,
}

/// A directory with a pid file for each process, named by its pid.
#[derive(Debug)]
pub(super) struct PidRegistry {
    directory: PathBuf,
    boot_id: String,
}

/// A pid file, removed when dropped.
#[derive(Debug)]
pub(super) struct PidFile(PathBuf);

impl PidRegistry {
    /// Opens the directory and kills the processes recorded in it. The caller must be its only
    /// user.
    pub(super) fn open(directory: PathBuf) -> io::Result<Self> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if let Some((pid, start)) = read_pid_file(&path, &boot_id)
                && kill_recorded_process(pid, start)
            {
                tracing::warn!(
                    pid = pid.as_raw_nonzero().get(),
                    "killed an MCP server that a previous runtime left behind"
                );
            }
            fs::remove_file(&path)?;
        }
        Ok(Self { directory, boot_id })
    }

    pub(super) fn register(&self, pid: Pid) -> Option<PidFile> {
        let path = self.directory.join(pid.as_raw_nonzero().to_string());
        let text = format!("{} {}\n", self.boot_id, process_start_time(pid)?);
        match fs::write(&path, text) {
            Ok(()) => Some(PidFile(path)),
            Err(error) => {
                tracing::warn!("cannot write the pid file {path:?} of an MCP server: {error}");
                None
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Reads the pid and start time of a process, if the file was written since the last boot.
fn read_pid_file(path: &Path, boot_id: &str) -> Option<(Pid, u64)> {
    let pid = Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?)?;
    let text = fs::read_to_string(path).ok()?;
    let (recorded_boot, start) = text.trim().split_once(' ')?;
    Some((pid, start.parse().ok()?)).filter(|_| recorded_boot == boot_id)
}

/// Returns the start time of a process in clock ticks since boot, or `None` if it has ended.
fn process_start_time(pid: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The command name before it may contain anything.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    fields.nth(18)?.parse().ok().filter(|_| !["Z", "X"].contains(&state))
}

/// Kills a process with its group, if its start time is still the recorded one.
fn kill_recorded_process(pid: Pid, start: u64) -> bool {
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    if process_start_time(pid) != Some(start) {
        return false;
    }
    // A stopped process cannot exit, so its pid cannot become that of another group.
    let _ = pidfd_send_signal(&pidfd, Signal::STOP);
    if process_start_time(pid) == Some(start) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    pidfd_send_signal(&pidfd, Signal::KILL).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> (Child, Pid) {
        let child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        (child, pid)
    }

    #[test]
    fn only_recorded_processes_are_killed() {
        let directory = tempfile::tempdir().unwrap();
        let [(mut recorded, a), (mut ended, b), (mut other, c), (mut before, d)] =
            [sleeper(), sleeper(), sleeper(), sleeper()];
        let registry = PidRegistry::open(directory.path().to_owned()).unwrap();
        // As after a kill: the pid file stays.
        std::mem::forget(registry.register(a).unwrap());
        drop(registry.register(b).unwrap());
        // These pids belonged to another process, or were recorded before the last boot.
        fs::write(directory.path().join(c.to_string()), format!("{} 1\n", registry.boot_id))
            .unwrap();
        let start = process_start_time(d).unwrap();
        fs::write(directory.path().join(d.to_string()), format!("another-boot {start}\n")).unwrap();
        fs::write(directory.path().join("notes.txt"), "not a pid file").unwrap();
        PidRegistry::open(directory.path().to_owned()).unwrap();
        assert!(recorded.wait().is_ok_and(|status| !status.success()));
        for (child, pid) in [(&mut ended, b), (&mut other, c), (&mut before, d)] {
            assert!(process_start_time(pid).is_some());
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
