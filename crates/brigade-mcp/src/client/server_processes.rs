//! What programs that run below a runtime have in common: who sees to them, what ends them, and a book
//! in which they stand.
//!
//! A runtime that is killed ends nothing, and not every program ends with its input. So each is written
//! down while it runs, and the next runtime with the same folder ends what is still in the book.

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

/// A file for each program, named by its number.
#[derive(Debug)]
pub(super) struct PidRegistry {
    folder: PathBuf,
    boot_id: String,
}

/// A program that stands in the book until this is dropped.
#[derive(Debug)]
pub(super) struct PidFile(PathBuf);

impl PidRegistry {
    /// Ends whatever stands in it. The folder belongs to whoever calls this, and to nobody else.
    pub(super) fn open(folder: PathBuf) -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if let Some((pid, start)) = read_pid_file(&path, &boot)
                && kill_recorded_process(pid, start)
            {
                tracing::warn!(pid = pid.as_raw_nonzero().get(), "an MCP server was left behind");
            }
            fs::remove_file(&path)?;
        }
        Ok(Self { folder, boot_id: boot })
    }

    pub(super) fn register(&self, pid: Pid) -> Option<PidFile> {
        let path = self.folder.join(pid.as_raw_nonzero().to_string());
        let text = format!("{} {}\n", self.boot_id, process_start_time(pid)?);
        match fs::write(&path, text) {
            Ok(()) => Some(PidFile(path)),
            Err(error) => {
                tracing::warn!("an MCP server cannot be written down in {path:?}: {error}");
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

/// Number and start of the program that a file stands for, if that was since the machine was started.
fn read_pid_file(path: &Path, boot: &str) -> Option<(Pid, u64)> {
    let pid = Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?)?;
    let text = fs::read_to_string(path).ok()?;
    let (then, start) = text.trim().split_once(' ')?;
    Some((pid, start.parse().ok()?)).filter(|_| then == boot)
}

/// When a process was started, in the kernel's own measure. None if there is none, or it has ended.
fn process_start_time(pid: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name before it may have anything in it.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    fields.nth(18)?.parse().ok().filter(|_| !["Z", "X"].contains(&state))
}

/// Kills a program with its group, if it is still the one that was started then.
fn kill_recorded_process(pid: Pid, start: u64) -> bool {
    let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    if process_start_time(pid) != Some(start) {
        return false;
    }
    // One that is stopped does not go and leave its number to another group.
    let _ = pidfd_send_signal(&held, Signal::STOP);
    if process_start_time(pid) == Some(start) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    pidfd_send_signal(&held, Signal::KILL).is_ok()
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
    fn what_stands_in_the_book_is_ended_and_what_does_not_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [(mut left, a), (mut ended, b), (mut other, c), (mut before, d)] =
            [sleeper(), sleeper(), sleeper(), sleeper()];
        let book = PidRegistry::open(folder.path().to_owned()).unwrap();
        // As after a kill: nobody took it out.
        std::mem::forget(book.register(a).unwrap());
        drop(book.register(b).unwrap());
        // Its number belonged to another program, or was given before the machine was started anew.
        fs::write(folder.path().join(c.to_string()), format!("{} 1\n", book.boot_id)).unwrap();
        let start = process_start_time(d).unwrap();
        fs::write(folder.path().join(d.to_string()), format!("elsewhere {start}\n")).unwrap();
        fs::write(folder.path().join("notes.txt"), "no program").unwrap();
        PidRegistry::open(folder.path().to_owned()).unwrap();
        assert!(left.wait().is_ok_and(|status| !status.success()));
        for (child, pid) in [(&mut ended, b), (&mut other, c), (&mut before, d)] {
            assert!(process_start_time(pid).is_some());
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
