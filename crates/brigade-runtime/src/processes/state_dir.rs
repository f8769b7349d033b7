//! The state directory of processes, which belongs to one user and one runtime.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brigade_process::private_file::open_private;
use brigade_process::process_identity;

/// The number of tries to lock a directory that an earlier runtime of this program may still hold.
const LOCK_TRIES: u32 = 50;
const BETWEEN_LOCK_TRIES: Duration = Duration::from_millis(10);

/// Refuses a state directory of others: whoever can write to it can execute processes as this user.
pub(super) fn check_state_dir(dir: &Path) -> io::Result<()> {
    let metadata = dir.metadata()?;
    let is_foreign = metadata.uid() != process_identity::effective_user();
    if is_foreign || metadata.permissions().mode() & 0o022 != 0 {
        let dir = dir.display();
        let problem =
            if is_foreign { "belongs to another user" } else { "can be written by others" };
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the directory {dir} {problem}; use one that is yours alone (mode 0700)"),
        ));
    }
    Ok(())
}

/// Returns the host that the processes of this directory run on: the name of the machine, and an id of
/// the directory, which is created once.
pub(super) fn read_host(dir: &Path) -> io::Result<Arc<str>> {
    let path = dir.join("host");
    let mut file = open_private(&path, File::options().read(true).write(true))?;
    let mut id = String::new();
    file.read_to_string(&mut id)?;
    if id.trim().is_empty() {
        id = crate::ids::new_host_id();
        file.write_all(id.as_bytes())?;
        file.sync_all()?;
    }
    Ok(format!("{}/{}", process_identity::machine_name(), id.trim()).into())
}

/// Returns the part of a host that identifies it. The name of a machine may change.
pub(super) fn host_id(host: &str) -> &str {
    host.rsplit('/').next().unwrap_or(host)
}

/// Locks the state directory, which no other runtime may use.
pub(super) fn lock_state_dir(dir: &Path) -> io::Result<File> {
    let mut options = File::options();
    let lock = open_private(&dir.join("processes.lock"), options.write(true).truncate(false))?;
    for _ in 0..LOCK_TRIES {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::Error(error)) => return Err(error),
            // A child that is just being started holds the lock until it executes its program.
            Err(TryLockError::WouldBlock) => std::thread::sleep(BETWEEN_LOCK_TRIES),
        }
    }
    let text = format!("another runtime uses the directory {}", dir.display());
    Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_stays_the_same_when_its_machine_is_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let host = read_host(dir.path()).unwrap();
        assert_eq!(read_host(dir.path()).unwrap(), host);
        let renamed = format!("other/name/{}", host_id(&host));
        assert_eq!(host_id(&renamed), host_id(&host));
        let other = tempfile::tempdir().unwrap();
        assert_ne!(host_id(&read_host(other.path()).unwrap()), host_id(&host));
    }
}
