//! One owner per database: an advisory lock on a file beside it.
//!
//! The operating system releases the lock when its holder ends. The lock file itself stays: if it
//! were removed, two owners could lock two different files of the same name.
//!
//! A child that the holder is starting shares the lock until it executes. So the holder unlocks the
//! file explicitly instead of closing it, and `acquire` retries for a moment.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use brigade_store::StoreError;

use crate::error::{Result, unavailable};

const ATTEMPTS_MAX: u32 = 10;
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The lock of a store that is open for writing.
#[derive(Debug)]
pub(crate) struct OwnerLock {
    file: File,
}

impl OwnerLock {
    pub(crate) fn acquire(database: &Path) -> Result<Self> {
        let path = lock_path(database);
        let failed =
            |e: std::io::Error| unavailable(format!("the lock file {}: {e}", path.display()));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        let mut attempts = 1;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if attempts < ATTEMPTS_MAX => sleep(RETRY_INTERVAL),
                Err(TryLockError::WouldBlock) => {
                    return Err(StoreError::Locked { holder: read_holder(&mut file) }.into());
                }
                Err(TryLockError::Error(e)) => return Err(failed(e)),
            }
            attempts += 1;
        }
        file.set_len(0).map_err(failed)?;
        file.write_all(render_this_process().as_bytes()).map_err(failed)?;
        Ok(Self { file })
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        // After an error, closing the file releases the lock too.
        let _ = self.file.unlock();
    }
}

fn lock_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn render_this_process() -> String {
    let mut text = format!("pid {}", std::process::id());
    if let Ok(program) = std::env::current_exe() {
        text.push_str(&format!("\nprogram {}", program.display()));
    }
    if let Some(ticks) = start_ticks() {
        text.push_str(&format!("\nstarted {ticks} ticks after boot"));
    }
    text.push('\n');
    text
}

/// Returns the start time of this process. Pid and start time together identify a process, since
/// the system reuses pids.
fn start_ticks() -> Option<String> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name is in parentheses and may contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19).map(str::to_owned)
}

fn read_holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => text.trim().replace('\n', ", "),
        _ => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_shares_the_file_does_not_hold_the_lock() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("some.db");
        let lock = OwnerLock::acquire(&path).unwrap();
        let file_of_child = lock.file.try_clone().unwrap();
        drop(lock);
        let again = OwnerLock::acquire(&path).unwrap();
        drop((again, file_of_child));
    }
}
