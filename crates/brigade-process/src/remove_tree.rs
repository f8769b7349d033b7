//! Removing a directory that a hostile process has filled.
//!
//! Directories may be nested deeper than a stack or the number of descriptors allows, and closed to
//! their owner. So nothing recurses: each directory below is moved up to the top before it is emptied.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

/// What a directory is called while it waits at the top to be emptied.
const WAITING: &str = "brigade-removing-";

/// Removes a directory and everything in it. It follows no link. A directory that is not there is removed.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let top = match open_directory(CWD, path.as_os_str()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        top => top?,
    };
    let mut waiting = Vec::new();
    let mut moved = 0;
    empty_directory(&top, &top, &mut waiting, &mut moved)?;
    while let Some(name) = waiting.pop() {
        let directory = open_directory(&top, OsStr::from_bytes(name.as_bytes()))?;
        empty_directory(&directory, &top, &mut waiting, &mut moved)?;
        drop(directory);
        ignore_missing(unlinkat(&top, &name, AtFlags::REMOVEDIR))?;
    }
    ignore_missing(unlinkat(CWD, path, AtFlags::REMOVEDIR))
}

/// Removes the files of a directory and moves its directories to the top.
fn empty_directory(
    directory: &OwnedFd,
    top: &OwnedFd,
    waiting: &mut Vec<CString>,
    moved: &mut u64,
) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    for name in names {
        match unlinkat(directory, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM | Errno::NOTEMPTY) => {}
            Err(error) => return Err(error.into()),
        }
        // A directory that moves is written to, so that it has to be open to its owner.
        drop(open_directory(directory, OsStr::from_bytes(name.as_bytes()))?);
        loop {
            *moved += 1;
            let place = CString::new(format!("{WAITING}{moved}"))?;
            match renameat(directory, &name, top, &place) {
                Ok(()) => {
                    waiting.push(place);
                    break;
                }
                // Somebody called one of his own so.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Opens a directory and no link, after its owner was given all rights to it.
fn open_directory(at: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    {
        let found = openat(at, name, flags | OFlags::PATH, Mode::empty())?;
        let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
        rustix::fs::chmod(&itself, Mode::RWXU)?;
        Ok(openat(&found, c".", flags | OFlags::RDONLY, Mode::empty())?)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = AsRawFd::as_raw_fd(&at.as_fd());
        Ok(openat(at, name, flags | OFlags::RDONLY, Mode::empty())?)
    }
}

fn ignore_missing(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::mkdirat;

    use super::*;

    #[test]
    fn a_tree_deeper_than_any_stack_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        fs::create_dir(&top).unwrap();
        let mut at = open_directory(CWD, top.as_os_str()).unwrap();
        for _ in 0..30_000 {
            mkdirat(&at, c"d", Mode::RWXU).unwrap();
            at = open_directory(&at, OsStr::new("d")).unwrap();
        }
        remove_tree(&top).unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn closed_directories_links_and_odd_names_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "mine").unwrap();
        let top = folder.path().join("top");
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        fs::create_dir_all(top.join("brigade-removing-1/x")).unwrap();
        fs::write(top.join("brigade-removing-2"), "a file").unwrap();
        fs::write(top.join("a/b/file"), "x").unwrap();
        symlink(&outside, top.join("a/link")).unwrap();
        symlink(&outside, top.join("link")).unwrap();
        fs::set_permissions(top.join("a/b"), Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(top.join("a"), Permissions::from_mode(0o000)).unwrap();
        remove_tree(&top).unwrap();
        assert!(!top.exists());
        assert_eq!(fs::read_to_string(outside.join("precious")).unwrap(), "mine");
        remove_tree(&top).unwrap();
        let link = folder.path().join("to-outside");
        symlink(&outside, &link).unwrap();
        assert!(remove_tree(&link).is_err(), "a link is no directory");
        assert!(outside.join("precious").exists());
    }
}
