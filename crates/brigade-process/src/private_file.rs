//! Files that only their owner can read or write.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens or creates a file with mode 0600. Does not follow a link.
pub fn open_private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    let file = options.create(true).mode(0o600).custom_flags(no_link).open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}
