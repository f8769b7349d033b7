//! A control group for each process, if a service manager delegates one to this program.
//!
//! One write ends a group as a whole, and the kernel limits its memory as a whole. That needs
//! cgroup version 2 and a delegated group: for systemd, a unit with `Delegate=yes`. A memory limit
//! also needs the daemon outside the group that it divides, as with `DelegateSubgroup=`. Without a
//! group, the shim searches the process tree.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::shim::layout;

/// The mount points of version 2: alone, or beside version 1.
const CGROUP_MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const PREFIX: &str = "brigade-";

/// A delegated group in which this program creates others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroups {
    root: PathBuf,
    limits_memory: bool,
}

impl ControlGroups {
    /// Finds the group that was delegated to this process, if any.
    pub fn detect() -> Option<Self> {
        Self::find_delegated().map(|root| Self::in_root(&root))
    }

    /// Returns the delegated group: the parent of this process's group, or that group itself.
    pub(crate) fn find_delegated() -> Option<PathBuf> {
        let mount = CGROUP_MOUNTS.map(Path::new).into_iter().find(|mount| is_version_2(mount))?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own_group(mount, &groups)?;
        let above = own.parent().filter(|above| above.starts_with(mount));
        above.into_iter().chain([&*own]).find(|group| is_delegated(group)).map(Path::to_owned)
    }

    /// Uses a group that this program is known to own.
    pub fn in_root(root: &Path) -> Self {
        let control = root.join("cgroup.subtree_control");
        // Fails if the group contains processes or the controller is not available.
        let _ = fs::write(&control, "+memory");
        let enabled = fs::read_to_string(&control).unwrap_or_default();
        let limits_memory = enabled.split_whitespace().any(|name| name == "memory");
        Self { root: root.to_owned(), limits_memory }
    }

    /// Returns true if one memory limit can apply to all processes of a group.
    pub fn limits_memory(&self) -> bool {
        self.limits_memory
    }

    /// Creates a group for the process with this directory, and writes its path there for the shim.
    pub fn create_group(&self, dir: &Path, memory: Option<u64>) -> io::Result<()> {
        let mut parts =
            dir.components().rev().take(2).map(|part| part.as_os_str().to_string_lossy());
        let own = parts.next().unwrap_or_default();
        let group = self.root.join(format!("{PREFIX}{}-{own}", parts.next().unwrap_or_default()));
        match fs::create_dir(&group) {
            // An interrupted execution has left it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => created?,
        }
        if let Some(bytes) = memory {
            fs::write(group.join("memory.max"), bytes.to_string())?;
            // The file is absent without swap.
            let _ = fs::write(group.join("memory.swap.max"), "0");
        }
        fs::write(dir.join(layout::GROUP), group.as_os_str().as_encoded_bytes())
    }

    /// Removes empty groups.
    pub fn remove_empty(&self) {
        let groups = fs::read_dir(&self.root).into_iter().flatten().flatten();
        for group in groups.filter(|group| group.file_name().to_string_lossy().starts_with(PREFIX))
        {
            let _ = fs::remove_dir(group.path());
        }
    }
}

/// Kills all processes in the group of this directory, if it has one.
pub fn kill_group_of(dir: &Path) -> io::Result<()> {
    match crate::shim::cgroup::read_group_path(dir) {
        Some(group) => crate::shim::cgroup::kill_group(&group),
        None => Ok(()),
    }
}

fn is_version_2(mount: &Path) -> bool {
    mount.join("cgroup.controllers").exists()
}

/// Returns the group of a process, given its `/proc/PID/cgroup`.
fn own_group(mount: &Path, groups: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(mount.join(path))
}

/// Reads the attribute with which systemd marks delegated groups.
#[cfg(full_linux)]
fn is_delegated(group: &Path) -> bool {
    let mut value = [0; 8];
    ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let length = rustix::fs::getxattr(group, *name, &mut value);
        length.is_ok_and(|length| value[..length] == *b"1")
    })
}

#[cfg(not(full_linux))]
fn is_delegated(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found() {
        let mount = Path::new("/sys/fs/cgroup");
        let table = [
            (
                "0::/user.slice/b.service/daemon\n",
                Some("/sys/fs/cgroup/user.slice/b.service/daemon"),
            ),
            ("4:memory:/x\n0::/\n", Some("/sys/fs/cgroup/")),
            ("4:memory:/x\n", None),
        ];
        for (groups, expect) in table {
            assert_eq!(own_group(mount, groups).as_deref(), expect.map(Path::new), "{groups}");
        }
    }

    /// Uses an ordinary directory instead of the kernel's: it stores the written values only.
    #[test]
    fn memory_is_limited_only_with_the_controller() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("root");
        let dir = temp.path().join("session/1.1.1");
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(&dir).unwrap();
        let groups = ControlGroups::in_root(&temp.path().join("none"));
        assert!(!groups.limits_memory());
        let groups = ControlGroups { limits_memory: true, root: root.clone() };
        groups.create_group(&dir, Some(1 << 20)).unwrap();
        let group = root.join("brigade-session-1.1.1");
        assert_eq!(fs::read_to_string(group.join("memory.max")).unwrap(), "1048576");
        assert_eq!(crate::shim::cgroup::read_group_path(&dir), Some(group.clone()));
        groups.create_group(&dir, None).unwrap();
        fs::remove_file(group.join("memory.max")).unwrap();
        fs::remove_file(group.join("memory.swap.max")).unwrap();
        groups.remove_empty();
        assert!(!group.exists());
    }
}
