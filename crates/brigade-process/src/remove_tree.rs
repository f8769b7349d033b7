//! Removes a directory that a hostile process has filled.
//!
//! Directories may be nested deeper than the stack or the descriptor limit allows, and be closed to
//! their owner. So nothing recurses: each subdirectory moves to the top before it is emptied.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

/// The name prefix of a directory that was moved to the top and is not empty yet.
const PENDING_PREFIX: &str = "brigade-removing-";

/// Removes a directory and its contents. Follows no link. Succeeds if there is no directory.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let top = match open_directory(CWD, path.as_os_str()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        top => top?,
    };
    remove_contents(&top)?;
    ignore_missing(unlinkat(CWD, path, AtFlags::REMOVEDIR))
}

/// Removes everything in a directory.
pub(crate) fn remove_contents(top: &OwnedFd) -> io::Result<()> {
    let mut pending = Vec::new();
    let mut move_count = 0;
    empty_directory(top, top, &mut pending, &mut move_count)?;
    while let Some(name) = pending.pop() {
        let directory = open_directory(top, OsStr::from_bytes(name.as_bytes()))?;
        empty_directory(&directory, top, &mut pending, &mut move_count)?;
        drop(directory);
        ignore_missing(unlinkat(top, &name, AtFlags::REMOVEDIR))?;
    }
    Ok(())
}

/// Removes the files of a directory and moves its subdirectories to the top.
fn empty_directory(
    directory: &OwnedFd,
    top: &OwnedFd,
    pending: &mut Vec<CString>,
    move_count: &mut u64,
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
        // A move writes to the directory, so its owner needs access to it.
        drop(open_directory(directory, OsStr::from_bytes(name.as_bytes()))?);
        loop {
            *move_count += 1;
            let new_name = CString::new(format!("{PENDING_PREFIX}{move_count}"))?;
            match renameat(directory, &name, top, &new_name) {
                Ok(()) => {
                    pending.push(new_name);
                    break;
                }
                // The process has used this name itself.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Opens a directory but no link, after giving its owner all rights.
pub(crate) fn open_directory(at: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    {
        let found = openat(at, name, flags | OFlags::PATH, Mode::empty())?;
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        rustix::fs::chmod(&path, Mode::RWXU)?;
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
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().join("top");
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
        let temp = tempfile::tempdir().unwrap();
        let outside = temp.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "mine").unwrap();
        let top = temp.path().join("top");
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
        let link = temp.path().join("to-outside");
        symlink(&outside, &link).unwrap();
        assert!(remove_tree(&link).is_err(), "a link is not a directory");
        assert!(outside.join("precious").exists());
    }
}
