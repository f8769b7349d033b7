//! A control group for each command, where a service manager leaves that to this program.
//!
//! A group is ended as a whole by one write, whatever its processes do meanwhile, and its memory is bounded
//! as a whole. Only version 2 can do that, and only below a group that was delegated: for systemd a unit
//! with `Delegate=yes`. Memory can be bounded only where the daemon itself is not in the group that it
//! divides, as with `DelegateSubgroup=`. Without any of it, the tree of processes is searched.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::shim::layout;

/// Where version 2 is mounted: alone, or beside version 1.
const CGROUP_MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const PREFIX: &str = "brigade-";

/// A group below which this program makes others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroups {
    root: PathBuf,
    limits_memory: bool,
}

impl ControlGroups {
    /// Those that were delegated to this process. None where nothing was.
    pub fn detect() -> Option<Self> {
        Self::find_delegated().map(|root| Self::in_root(&root))
    }

    /// The group that was delegated to this process: its own, or the one above.
    pub(crate) fn find_delegated() -> Option<PathBuf> {
        let mount = CGROUP_MOUNTS.map(Path::new).into_iter().find(|mount| is_version_2(mount))?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own_group(mount, &groups)?;
        let above = own.parent().filter(|above| above.starts_with(mount));
        above.into_iter().chain([&*own]).find(|group| is_delegated(group)).map(Path::to_owned)
    }

    /// A group that is known to be this program's to divide.
    pub fn in_root(root: &Path) -> Self {
        let control = root.join("cgroup.subtree_control");
        // Refused where processes are in it, or the controller is not to be had.
        let _ = fs::write(&control, "+memory");
        let enabled = fs::read_to_string(&control).unwrap_or_default();
        let bounds_memory = enabled.split_whitespace().any(|one| one == "memory");
        Self { root: root.to_owned(), limits_memory: bounds_memory }
    }

    /// Whether the memory of all processes of a command can be bounded together.
    pub fn limits_memory(&self) -> bool {
        self.limits_memory
    }

    /// Makes a group for the command of this directory, for its shim to find there.
    pub fn create_group(&self, dir: &Path, memory: Option<u64>) -> io::Result<()> {
        let mut parts =
            dir.components().rev().take(2).map(|part| part.as_os_str().to_string_lossy());
        let own = parts.next().unwrap_or_default();
        let group = self.root.join(format!("{PREFIX}{}-{own}", parts.next().unwrap_or_default()));
        match fs::create_dir(&group) {
            // Of an execution that was cut off before it began.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        if let Some(bytes) = memory {
            fs::write(group.join("memory.max"), bytes.to_string())?;
            // Absent where there is no swap.
            let _ = fs::write(group.join("memory.swap.max"), "0");
        }
        fs::write(dir.join(layout::GROUP), group.as_os_str().as_encoded_bytes())
    }

    /// Removes groups that nothing is in any more.
    pub fn remove_empty(&self) {
        let groups = fs::read_dir(&self.root).into_iter().flatten().flatten();
        for group in groups.filter(|group| group.file_name().to_string_lossy().starts_with(PREFIX))
        {
            let _ = fs::remove_dir(group.path());
        }
    }
}

/// Kills all that is in the group of the command of this directory, if it has one.
pub fn kill_group_of(dir: &Path) -> io::Result<()> {
    match crate::shim::cgroup::read_group_path(dir) {
        Some(group) => crate::shim::cgroup::kill_group(&group),
        None => Ok(()),
    }
}

fn is_version_2(mount: &Path) -> bool {
    mount.join("cgroup.controllers").exists()
}

/// The group that a process is in, by its `/proc/PID/cgroup`.
fn own_group(mount: &Path, groups: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(mount.join(path))
}

/// systemd marks the groups that it leaves to others.
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
    fn the_group_that_we_are_in_is_found() {
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

    /// A folder in place of the kernel's: it takes what is written and does nothing.
    #[test]
    fn memory_is_bounded_only_where_the_controller_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (root, dir) = (folder.path().join("root"), folder.path().join("tree/1.1.1"));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(&dir).unwrap();
        let groups = ControlGroups::in_root(&folder.path().join("none"));
        assert!(!groups.limits_memory());
        let groups = ControlGroups { limits_memory: true, root: root.clone() };
        groups.create_group(&dir, Some(1 << 20)).unwrap();
        let group = root.join("brigade-tree-1.1.1");
        assert_eq!(fs::read_to_string(group.join("memory.max")).unwrap(), "1048576");
        assert_eq!(crate::shim::cgroup::read_group_path(&dir), Some(group.clone()));
        groups.create_group(&dir, None).unwrap();
        fs::remove_file(group.join("memory.max")).unwrap();
        fs::remove_file(group.join("memory.swap.max")).unwrap();
        groups.remove_empty();
        assert!(!group.exists());
    }
}
