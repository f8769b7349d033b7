//! Leases on a command's output, as the runtime keeps them for readers who must not miss anything.
//!
//! See [`crate::shim::lease`] for the file. It is in the shim's directory, which a sandboxed command cannot
//! see; a command without a sandbox could as well kill its shim.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::private_file::open_private;
use crate::shim::layout::LEASES;
use crate::shim::lease::{LeaseTable, OutputLease};

/// A table is read, changed and written: one at a time. The folder has no other owner.
static TABLE_LOCK: Mutex<()> = Mutex::new(());

/// Renews a reader's lease, or gives it one: it has read so much of both streams, and must not miss anything
/// after that for so long. The holder is a random number that is not zero.
pub fn renew_lease(dir: &Path, holder: u64, position: u64, time: Duration) -> io::Result<()> {
    let _changing = lock_table();
    let mut options = OpenOptions::new();
    let file = open_private(&dir.join(LEASES), options.read(true).write(true))?;
    let mut table = LeaseTable::read_from(&file).unwrap_or_default();
    let now = LeaseTable::now_millis();
    let expires = now.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    if !table.insert(OutputLease { holder, position, expires_at: expires }, now) {
        return Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            "too many readers hold its output",
        ));
    }
    table.write_to(&file)
}

/// Ends a reader's lease, if it has one.
pub fn release_lease(dir: &Path, holder: u64) -> io::Result<()> {
    let _changing = lock_table();
    let file = match File::options().read(true).write(true).open(dir.join(LEASES)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let Some(mut table) = LeaseTable::read_from(&file) else { return Ok(()) };
    table.remove(holder);
    table.write_to(&file)
}

fn lock_table() -> MutexGuard<'static, ()> {
    TABLE_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}
