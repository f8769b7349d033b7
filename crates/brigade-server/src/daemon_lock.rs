//! The lock of a state folder: the daemon holds it, and anybody can see who does.
//!
//! The file has two lines: the daemon's pid, and how far its life is. A client that finds no socket looks here
//! before it says that no daemon runs.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use brigade_process::private_file::open_private;

/// A client that looks at the lock holds it for an instant. It is tried so often before it is somebody's.
const LOCK_ATTEMPTS: u32 = 5;
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(10);

/// How far a daemon's life is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonPhase {
    /// It recovers what the store holds, and does not listen yet.
    Starting,
    Serving,
    /// It does not listen any more.
    ShuttingDown,
}

impl DaemonPhase {
    const ALL: [Self; 3] = [Self::Starting, Self::Serving, Self::ShuttingDown];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

/// The daemon that holds a lock, as the lock's file names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockHolder {
    pub pid: Option<u32>,
    pub phase: Option<DaemonPhase>,
}

impl LockHolder {
    fn parse(text: &str) -> Self {
        let mut lines = text.lines().map(str::trim);
        let pid = lines.next().and_then(|pid| pid.parse().ok());
        let phase = lines
            .next()
            .and_then(|word| DaemonPhase::ALL.into_iter().find(|phase| phase.as_str() == word));
        Self { pid, phase }
    }
}

/// Returns the holder of the lock at this path. None when nobody holds it, or it cannot be looked at.
pub fn find_lock_holder(path: &Path) -> Option<LockHolder> {
    let mut lock = File::open(path).ok()?;
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(read_holder(&mut lock)),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// The lock, held.
#[derive(Debug)]
pub(crate) struct HeldLock {
    file: File,
}

/// Nobody gets the lock but one.
#[derive(Debug)]
pub(crate) enum LockError {
    Held(LockHolder),
    Io(io::Error),
}

impl HeldLock {
    pub(crate) fn acquire(path: &Path) -> Result<Self, LockError> {
        let mut options = File::options();
        options.read(true).write(true).truncate(false);
        let mut file = open_private(path, &mut options).map_err(LockError::Io)?;
        for look in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if look < LOCK_ATTEMPTS => {
                    std::thread::sleep(LOCK_RETRY_PAUSE)
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(LockError::Held(read_holder(&mut file)));
                }
                Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
            }
        }
        let held = Self { file };
        held.write_phase(DaemonPhase::Starting).map_err(LockError::Io)?;
        Ok(held)
    }

    pub(crate) fn write_phase(&self, phase: DaemonPhase) -> io::Result<()> {
        let text = format!("{}\n{}\n", std::process::id(), phase.as_str());
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)
    }

    /// Returns whether the file at this path is still the one that is locked, as far as it can be known. Otherwise
    /// the folder was removed, and may belong to another daemon by now.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let there = match std::fs::symlink_metadata(path) {
            Ok(there) => there,
            Err(error) => return !is_absent(&error),
        };
        self.file
            .metadata()
            .map_or(true, |held| (held.dev(), held.ino()) == (there.dev(), there.ino()))
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn read_holder(lock: &mut File) -> LockHolder {
    let mut text = String::new();
    let _ = lock.read_to_string(&mut text);
    LockHolder::parse(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_while_it_holds() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("daemon.lock");
        assert_eq!(find_lock_holder(&path), None, "there is no file");
        let held = HeldLock::acquire(&path).expect("the lock");
        let pid = Some(std::process::id());
        let starting = LockHolder { pid, phase: Some(DaemonPhase::Starting) };
        assert_eq!(find_lock_holder(&path), Some(starting));
        held.write_phase(DaemonPhase::Serving).expect("a phase");
        let serving = LockHolder { pid, phase: Some(DaemonPhase::Serving) };
        assert_eq!(find_lock_holder(&path), Some(serving));
        assert!(
            matches!(HeldLock::acquire(&path), Err(LockError::Held(holder)) if holder == serving)
        );
        drop(held);
        assert_eq!(find_lock_holder(&path), None, "a pid alone is nobody");
    }

    #[test]
    fn somebody_who_looks_keeps_nobody_from_the_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("daemon.lock");
        drop(HeldLock::acquire(&path).expect("the lock"));
        let looking = File::open(&path).expect("the file");
        looking.try_lock_shared().expect("a look");
        let ends = std::thread::spawn(move || {
            std::thread::sleep(LOCK_RETRY_PAUSE);
            drop(looking);
        });
        HeldLock::acquire(&path).expect("the lock, a moment later");
        ends.join().expect("no panic");
    }

    #[test]
    fn a_lock_whose_file_was_replaced_is_not_at_its_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("daemon.lock");
        let held = HeldLock::acquire(&path).expect("the lock");
        assert!(held.is_at(&path));
        std::fs::remove_file(&path).expect("removed");
        assert!(!held.is_at(&path));
        let _other = HeldLock::acquire(&path).expect("another file, another lock");
        assert!(!held.is_at(&path));
    }

    #[test]
    fn a_file_of_an_older_daemon_has_a_pid_alone() {
        let holder = |pid, phase| LockHolder { pid, phase };
        assert_eq!(LockHolder::parse("12\n"), holder(Some(12), None));
        assert_eq!(LockHolder::parse("12\nresting\n"), holder(Some(12), None));
        assert_eq!(LockHolder::parse(""), holder(None, None));
    }
}
