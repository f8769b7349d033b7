//! Supervises MCP server processes: their tasks, their shutdown, and a pid file for each.
//!
//! A killed runtime stops no server, and some servers do not end with their input. The next runtime
//! with the same directory therefore kills the processes whose pid files are left.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_process::process_identity::{
    BootId, HeldProcess, ProcessId, identify_process, read_boot_id,
};
use rustix::process::{Pid, Signal, kill_process_group};
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
    boot_id: BootId,
}

/// A pid file, removed when dropped.
#[derive(Debug)]
pub(super) struct PidFile(PathBuf);

impl PidRegistry {
    /// Opens the directory and kills the processes recorded in it. The caller must be its only
    /// user.
    pub(super) fn open(directory: PathBuf) -> io::Result<Self> {
        let boot_id = read_boot_id()?;
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if let Some(id) = read_pid_file(&path, boot_id)
                && kill_recorded_process(id)
            {
                tracing::warn!(
                    pid = id.pid,
                    "killed an MCP server that a previous runtime left behind"
                );
            }
            fs::remove_file(&path)?;
        }
        Ok(Self { directory, boot_id })
    }

    pub(super) fn register(&self, pid: Pid) -> Option<PidFile> {
        let id = identify_process(pid.as_raw_nonzero().get().unsigned_abs())?;
        let path = self.directory.join(id.pid.to_string());
        let text = format!("{} {}\n", self.boot_id.to_hex(), id.start);
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

/// Reads the identity of a process, if the file was written since the last boot.
fn read_pid_file(path: &Path, boot_id: BootId) -> Option<ProcessId> {
    let pid = path.file_name()?.to_str()?.parse().ok()?;
    let text = fs::read_to_string(path).ok()?;
    let (recorded_boot, start) = text.trim().split_once(' ')?;
    let id = ProcessId { pid, start: start.parse().ok()? };
    Some(id).filter(|_| BootId::parse(recorded_boot) == Some(boot_id))
}

/// Kills a process with its group, if the pid is still its own.
fn kill_recorded_process(id: ProcessId) -> bool {
    let Ok(Some(held)) = HeldProcess::open(id) else { return false };
    if !held.is_alive() {
        return false;
    }
    // A stopped process cannot exit, so its pid cannot become that of another group.
    let _ = held.send_signal(Signal::STOP);
    if held.is_alive()
        && let Some(group) = i32::try_from(id.pid).ok().and_then(Pid::from_raw)
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
    held.send_signal(Signal::KILL).is_ok()
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
        let boot_id = registry.boot_id;
        // These pids belonged to another process, or were recorded before the last boot.
        fs::write(directory.path().join(c.to_string()), format!("{} 1\n", boot_id.to_hex()))
            .unwrap();
        let another_boot = BootId(boot_id.0.map(|byte| !byte));
        let start = identify_process(before.id()).unwrap().start;
        fs::write(
            directory.path().join(d.to_string()),
            format!("{} {start}\n", another_boot.to_hex()),
        )
        .unwrap();
        fs::write(directory.path().join("notes.txt"), "not a pid file").unwrap();
        PidRegistry::open(directory.path().to_owned()).unwrap();
        assert!(recorded.wait().is_ok_and(|status| !status.success()));
        for child in [&mut ended, &mut other, &mut before] {
            assert!(identify_process(child.id()).is_some());
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
