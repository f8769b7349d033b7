//! The lock of a state directory, with the pid and the phase of the daemon that holds it.
//!
//! The file has two lines: the pid and the phase. A client that finds no socket reads them before
//! it reports that no daemon runs.

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use brigade_process::private_file::open_private;

/// The attempts before the lock counts as held. A client that inspects the lock holds it for an
/// instant.
const LOCK_ATTEMPTS: u32 = 5;
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(10);

/// The phase of a daemon's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonPhase {
    /// The daemon recovers the stored sessions and does not listen yet.
    Starting,
    Serving,
    /// The daemon no longer listens.
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

/// The holder of a lock, as the lock file names it.
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

/// Returns the holder of the lock at this path; `None` if it is free or cannot be read.
pub fn find_lock_holder(path: &Path) -> Option<LockHolder> {
    let mut lock = File::open(path).ok()?;
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(read_holder(&mut lock)),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// The identity of a file, whatever its path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    pub fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// A held lock, released on drop.
#[derive(Debug)]
pub struct HeldLock {
    file: File,
}

/// The reason why the lock was not acquired.
#[derive(Debug)]
pub enum LockError {
    Held(LockHolder),
    Io(io::Error),
}

impl HeldLock {
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        let mut options = File::options();
        options.read(true).write(true).truncate(false);
        let mut file = open_private(path, &mut options).map_err(LockError::Io)?;
        for attempt in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if attempt < LOCK_ATTEMPTS => {
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

    pub fn write_phase(&self, phase: DaemonPhase) -> io::Result<()> {
        let text = format!("{}\n{}\n", std::process::id(), phase.as_str());
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)
    }

    /// Returns false if the file at this path is not the locked one. Then the directory was
    /// removed, and another daemon may have created it again. Errors other than a missing file
    /// count as true.
    pub fn is_at(&self, path: &Path) -> bool {
        let present = match std::fs::symlink_metadata(path) {
            Ok(present) => present,
            Err(error) => return !is_absent(&error),
        };
        let held = self.file.metadata();
        held.map_or(true, |held| FileIdentity::of(&held) == FileIdentity::of(&present))
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
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("daemon.lock");
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
        assert_eq!(find_lock_holder(&path), None, "a pid without a lock is no holder");
    }

    #[test]
    fn inspecting_the_lock_does_not_prevent_its_acquisition() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("daemon.lock");
        drop(HeldLock::acquire(&path).expect("the lock"));
        let inspecting = File::open(&path).expect("the file");
        inspecting.try_lock_shared().expect("a shared lock");
        let releasing = std::thread::spawn(move || {
            std::thread::sleep(LOCK_RETRY_PAUSE);
            drop(inspecting);
        });
        HeldLock::acquire(&path).expect("the lock, a moment later");
        releasing.join().expect("no panic");
    }

    #[test]
    fn a_lock_whose_file_was_replaced_is_not_at_its_path() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("daemon.lock");
        let held = HeldLock::acquire(&path).expect("the lock");
        assert!(held.is_at(&path));
        std::fs::remove_file(&path).expect("removed");
        assert!(!held.is_at(&path));
        let _other = HeldLock::acquire(&path).expect("another file, another lock");
        assert!(!held.is_at(&path));
    }

    #[test]
    fn a_missing_or_unknown_phase_is_ignored() {
        let holder = |pid, phase| LockHolder { pid, phase };
        assert_eq!(LockHolder::parse("12\n"), holder(Some(12), None));
        assert_eq!(LockHolder::parse("12\nresting\n"), holder(Some(12), None));
        assert_eq!(LockHolder::parse(""), holder(None, None));
    }
}
