//! Files that only their owner can read or write, and plain files that others may have replaced.

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

/// Opens a plain file to read it. Follows no link, and waits for no pipe that took its place.
pub fn open_plain(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a plain file")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn pipes_and_links_are_no_plain_files() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "mine").unwrap();
        let link = dir.path().join("link");
        symlink(&file, &link).unwrap();
        assert_eq!(io::read_to_string(open_plain(&file).unwrap()).unwrap(), "mine");
        for special in [&pipe, &link, &dir.path().to_owned()] {
            assert!(open_plain(special).is_err(), "{}", special.display());
        }
    }
}
