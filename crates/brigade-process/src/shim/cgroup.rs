//! The control group of a command, where it has one.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::layout;

/// The group that was made for the command of this directory.
pub(crate) fn read_group_path(directory: &Path) -> Option<PathBuf> {
    let path = fs::read(directory.join(layout::GROUP)).ok()?;
    Some(PathBuf::from(OsString::from_vec(path)))
}

/// Whether it has a bound on the memory of all that is in it.
pub(super) fn has_memory_limit(group: &Path) -> bool {
    fs::read(group.join("memory.max")).is_ok_and(|bound| bound.trim_ascii() != b"max")
}

/// Puts this process, and all that it ever starts, into the group.
pub(super) fn enter_group(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// Kills all that is in it, and whatever any of that is just starting.
pub(crate) fn kill_group(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.kill"), "1")
}

/// Fails while anything is in it.
pub(super) fn remove_group(group: &Path) {
    let _ = fs::remove_dir(group);
}
