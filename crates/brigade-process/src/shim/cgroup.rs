//! The control group of a process, if it has one.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::layout;

/// Returns the group that was created for the process with this directory.
pub(crate) fn read_group_path(directory: &Path) -> Option<PathBuf> {
    let path = fs::read(directory.join(layout::GROUP)).ok()?;
    Some(PathBuf::from(OsString::from_vec(path)))
}

/// Returns true if the group has a memory limit.
pub(super) fn has_memory_limit(group: &Path) -> bool {
    fs::read(group.join("memory.max")).is_ok_and(|limit| limit.trim_ascii() != b"max")
}

/// Moves this process into the group. Its later descendants are in it too.
pub(super) fn enter_group(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// Kills all processes in the group, including those that are starting.
pub(crate) fn kill_group(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.kill"), "1")
}

/// Removes the group. Does nothing while processes are in it.
pub(super) fn remove_group(group: &Path) {
    let _ = fs::remove_dir(group);
}
