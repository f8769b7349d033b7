//! Leases on the output of a process, which the runtime stores for readers that must not miss any.
//!
//! [`crate::shim::lease`] describes the file. A sandboxed process cannot see it in the shim's
//! directory. A process without a sandbox could kill its shim anyway.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::private_file::open_private;
use crate::shim::layout::LEASES;
use crate::shim::lease::{LeaseTable, OutputLease};

/// The lock for read-modify-write of the table. The directory has no other owner.
static TABLE_LOCK: Mutex<()> = Mutex::new(());

/// Creates or renews a reader's lease. The reader has read `position` bytes of both streams
/// together and must not miss later ones for this time. The holder is a random number other than
/// zero.
pub fn renew_lease(dir: &Path, holder: u64, position: u64, time: Duration) -> io::Result<()> {
    let _guard = lock_table();
    let file = open_table(dir)?;
    let mut table = LeaseTable::read_from(&file).unwrap_or_default();
    let now = LeaseTable::now_millis();
    let expires_at = now.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    if !table.insert(OutputLease { holder, position, expires_at }, now) {
        return Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            "too many readers hold a lease on its output",
        ));
    }
    table.write_to(&file)
}

/// Ends a reader's lease. A process that still waits for its first reader then waits no longer.
pub fn release_lease(dir: &Path, holder: u64) -> io::Result<()> {
    let _guard = lock_table();
    let file = open_table(dir)?;
    let mut table = LeaseTable::read_from(&file).unwrap_or_default();
    table.remove(holder);
    table.write_to(&file)
}

fn open_table(dir: &Path) -> io::Result<File> {
    open_private(&dir.join(LEASES), OpenOptions::new().read(true).write(true))
}

fn lock_table() -> MutexGuard<'static, ()> {
    TABLE_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}
