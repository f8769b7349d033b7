//! Removes links, pipes, sockets and devices from directories in which a hostile process could make
//! them, and leaves plain files.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::remove_tree::{open_directory, remove_contents};

/// The directories of a tree that are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialFileSearch {
    /// The levels of subdirectories. Deeper ones are removed if `removes_deeper`, else ignored.
    pub depth: usize,
    pub removes_deeper: bool,
    /// Special files that are older stay: they were there before.
    pub since: Option<SystemTime>,
}

impl SpecialFileSearch {
    /// The most levels of directories that git has in its own.
    const DEPTH_MAX: usize = 64;

    /// A search of the directory without its subdirectories.
    pub const FLAT: Self = Self { depth: 0, removes_deeper: false, since: None };
    /// A search of all subdirectories. Those that are nested too deep for any program are removed.
    pub const DEEP: Self = Self { depth: Self::DEPTH_MAX, removes_deeper: true, since: None };

    /// Removes the special files of a directory, which may be missing. Follows no link. Continues
    /// after an error and returns the first one.
    pub fn remove_from(self, directory: &Path) -> io::Result<()> {
        let mut problem = None;
        match open_listed(CWD, directory.as_os_str()) {
            Ok(opened) => self.search(&opened, self.depth, &mut problem),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => problem = Some(error),
        }
        problem.map_or(Ok(()), Err)
    }

    fn search(self, directory: &OwnedFd, depth: usize, problem: &mut Option<io::Error>) {
        let names = match read_names(directory) {
            Ok(names) => names,
            Err(error) => {
                problem.get_or_insert(error);
                return;
            }
        };
        for name in names {
            if let Err(error) = self.examine(directory, &name, depth, problem) {
                problem.get_or_insert(error);
            }
        }
    }

    fn examine(
        self,
        directory: &OwnedFd,
        name: &CString,
        depth: usize,
        problem: &mut Option<io::Error>,
    ) -> io::Result<()> {
        let found = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            found => found?,
        };
        let own_name = OsStr::from_bytes(name.as_bytes());
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory if depth > 0 => {
                self.search(&open_listed(directory, own_name)?, depth - 1, problem);
            }
            FileType::Directory if self.removes_deeper => {
                remove_contents(&open_directory(directory, own_name)?)?;
                unlinkat(directory, name, AtFlags::REMOVEDIR)?;
            }
            FileType::Directory => {}
            _ if self.since.is_some_and(|since| changed_at(&found) < since) => {}
            _ => unlinkat(directory, name, AtFlags::empty())?,
        }
        Ok(())
    }
}

fn read_names(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

/// Returns the time at which a file was made, renamed or changed. No program can set it.
fn changed_at(stat: &Stat) -> SystemTime {
    let seconds = u64::try_from(stat.st_ctime).unwrap_or_default();
    let nanoseconds = u32::try_from(stat.st_ctime_nsec).unwrap_or_default();
    UNIX_EPOCH + Duration::new(seconds, nanoseconds)
}

/// Opens a directory to list it. Changes its mode only if it is closed to its owner.
fn open_listed(at: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let found = statat(&at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if Mode::from_raw_mode(found.st_mode).contains(Mode::RWXU) {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        return Ok(openat(at, name, flags, Mode::empty())?);
    }
    open_directory(at, name)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::{mkdirat, mknodat};

    use super::*;

    #[test]
    fn special_files_are_removed_also_after_an_error_and_in_closed_or_deep_directories() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().join("top");
        fs::create_dir_all(top.join("closed")).unwrap();
        fs::write(top.join("closed/plain"), "mine").unwrap();
        symlink("/", top.join("closed/link")).unwrap();
        fs::set_permissions(top.join("closed"), Permissions::from_mode(0o000)).unwrap();
        mknodat(CWD, top.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        // Its path is longer than any system call takes.
        let mut at = open_directory(CWD, top.as_os_str()).unwrap();
        let long = "d".repeat(200);
        for _ in 0..100 {
            mkdirat(&at, &*long, Mode::RWXU).unwrap();
            at = open_directory(&at, OsStr::new(&long)).unwrap();
        }
        mknodat(&at, "pipe", FileType::Fifo, Mode::RWXU, 0).unwrap();
        SpecialFileSearch::DEEP.remove_from(&top).unwrap();
        assert!(statat(&at, "pipe", AtFlags::empty()).is_err());
        assert!(fs::symlink_metadata(top.join("pipe")).is_err());
        assert!(fs::symlink_metadata(top.join("closed/link")).is_err());
        assert_eq!(fs::read_to_string(top.join("closed/plain")).unwrap(), "mine");
        SpecialFileSearch::DEEP.remove_from(&top.join("missing")).unwrap();
    }

    #[test]
    fn older_files_and_those_of_other_directories_stay() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path();
        fs::create_dir(top.join("inner")).unwrap();
        symlink("x", top.join("link")).unwrap();
        symlink("x", top.join("inner/link")).unwrap();
        let is_there = |name: &str| fs::symlink_metadata(top.join(name)).is_ok();
        let made = fs::symlink_metadata(top.join("link")).unwrap().modified().unwrap();
        let later = made + Duration::from_secs(60);
        SpecialFileSearch { since: Some(later), ..SpecialFileSearch::DEEP }
            .remove_from(top)
            .unwrap();
        assert!(is_there("link") && is_there("inner/link"));
        let earlier = made - Duration::from_secs(60);
        SpecialFileSearch { since: Some(earlier), ..SpecialFileSearch::FLAT }
            .remove_from(top)
            .unwrap();
        assert!(!is_there("link") && is_there("inner/link"));
    }
}
