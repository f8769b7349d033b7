//! Opens files beneath a directory, by its handle.
//!
//! Every path is opened with `openat2`, `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`. The kernel
//! guarantees that no part is a link and nothing leads above the handle. The opened path is
//! therefore the authorized one, even if a directory is swapped for a link meanwhile: the call
//! fails. Some kernels and container filters lack `openat2`. There each name is opened from the
//! handle of its parent without following links, which gives the same guarantee with one system
//! call per name.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, mkdirat, openat,
    openat2, readlinkat, statat,
};
use rustix::io::Errno;

use crate::rel_path::RelPath;

/// Flags to open an entry without side effects on pipes and devices.
const LOOK_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY_FLAGS: OFlags = LOOK_FLAGS.union(OFlags::DIRECTORY);

/// The maximum number of tries of a resolution that concurrent renames disturb.
const RESOLVE_TRIES: usize = 16;

/// File systems that expose the kernel: proc, sysfs, debugfs, tracefs, cgroups, secrets.
const KERNEL_FILE_SYSTEMS: [i64; 8] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x0027_e0eb,
    0x6367_7270,
    0x7363_6673,
    0x6e73_6673,
];

/// File systems on which a name has one spelling: ext, xfs, btrfs, tmpfs, overlayfs, zfs, f2fs,
/// nfs.
const EXACT_NAME_FILE_SYSTEMS: [i64; 8] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010, 0x6969];

/// A handle of the working directory.
#[derive(Debug)]
pub(crate) struct ConfinedDir {
    handle: OwnedFd,
    resolver: PathResolver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathResolver {
    Kernel,
    /// Resolution name by name, without `openat2`.
    Walk,
}

/// The entry at a path.
#[derive(Debug)]
pub(crate) enum DirEntryKind {
    Missing,
    Link(Vec<u8>),
    Other(Stat),
}

/// The reason why a path cannot be opened as a plain file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenFileError {
    Errno(Errno),
    Directory,
    Special(&'static str),
}

impl From<Errno> for OpenFileError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl ConfinedDir {
    pub(crate) fn open(directory: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = openat(CWD, directory, flags, Mode::empty())?;
        Ok(Self { handle, resolver: PathResolver::Kernel })
    }

    /// Opens a directory whose whole path contains no link.
    pub(crate) fn open_without_links(directory: &Path) -> Result<Self, Errno> {
        let path = directory.to_str().and_then(|path| RelPath::parse(path).ok());
        let top = Self::open(Path::new("/"))?;
        let handle = top.open_beneath(&path.ok_or(Errno::INVAL)?, DIRECTORY_FLAGS)?;
        Ok(Self { handle, ..top })
    }

    /// Returns the entry at the path. A link in its parents is `ELOOP` or `ENOTDIR`.
    pub(crate) fn inspect(&self, name: &RelPath) -> Result<DirEntryKind, Errno> {
        let handle = match self.open_beneath(name, LOOK_FLAGS) {
            Err(Errno::NOENT) => return Ok(DirEntryKind::Missing),
            handle => handle?,
        };
        let stat = fstat(&handle)?;
        match file_type(&stat) {
            FileType::Symlink => {
                Ok(DirEntryKind::Link(readlinkat(&handle, "", Vec::new())?.into_bytes()))
            }
            _ => Ok(DirEntryKind::Other(stat)),
        }
    }

    /// Opens a plain file for reading. Other files are refused before they are opened, without
    /// blocking.
    pub(crate) fn open_file(&self, name: &RelPath) -> Result<(File, Stat), OpenFileError> {
        check_plain_file(&fstat(self.open_beneath(name, LOOK_FLAGS)?)?)?;
        // The entry may have been replaced since the check.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open_beneath(name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
        let stat = fstat(&file)?;
        check_plain_file(&stat)?;
        if KERNEL_FILE_SYSTEMS.contains(&fstatfs(&file)?.f_type) {
            return Err(OpenFileError::Special("an interface of the kernel, not a stored file"));
        }
        Ok((File::from(file), stat))
    }

    /// Checks that an existing file is writable.
    pub(crate) fn may_write(&self, name: &RelPath) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        match self.open_beneath(name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC) {
            // A running program cannot be written, but it can be replaced.
            Ok(_) | Err(Errno::TXTBSY) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Returns true if the path is missing or spelled exactly like its entries. On a
    /// case-insensitive file system `.ENV` is `.env`, and rules would be matched against the wrong
    /// name.
    pub(crate) fn has_exact_name(&self, name: &RelPath) -> Result<bool, Errno> {
        let mut directory = RelPath::root();
        for part in name.names() {
            let next = directory.join(part);
            match self.open_beneath(&directory, DIRECTORY_FLAGS) {
                Ok(handle) if EXACT_NAME_FILE_SYSTEMS.contains(&fstatfs(&handle)?.f_type) => (),
                Ok(_) if matches!(self.inspect(&next)?, DirEntryKind::Missing) => return Ok(true),
                Ok(_) if !has_entry(self.open_directory(&directory)?, part)? => return Ok(false),
                Ok(_) => (),
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(true),
                Err(errno) => return Err(errno),
            }
            directory = next;
        }
        Ok(true)
    }

    /// Opens a directory for reading or for creating entries.
    pub(crate) fn open_directory(&self, name: &RelPath) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.open_beneath(name, flags)
    }

    /// Creates a directory in an existing one. Returns true if this call created it.
    pub(crate) fn make_directory(&self, name: &RelPath) -> Result<bool, Errno> {
        let Some((parent, last)) = name.split() else { return Ok(false) };
        let parent = self.open_beneath(&parent, DIRECTORY_FLAGS)?;
        match mkdirat(&parent, last, Mode::from_raw_mode(0o777)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => {
                let entry = statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW)?;
                if file_type(&entry) == FileType::Directory {
                    Ok(false)
                } else {
                    Err(Errno::NOTDIR)
                }
            }
            Err(errno) => Err(errno),
        }
    }

    fn open_beneath(&self, name: &RelPath, flags: OFlags) -> Result<OwnedFd, Errno> {
        if self.resolver == PathResolver::Walk {
            return self.open_by_walk(name, flags);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        for _ in 0..RESOLVE_TRIES {
            match openat2(&self.handle, name.as_str(), flags, Mode::empty(), resolve) {
                Err(Errno::NOSYS | Errno::PERM) => return self.open_by_walk(name, flags),
                Err(Errno::AGAIN | Errno::INTR) => (),
                opened => return opened,
            }
        }
        Err(Errno::AGAIN)
    }

    fn open_by_walk(&self, name: &RelPath, flags: OFlags) -> Result<OwnedFd, Errno> {
        let Some((parent, last)) = name.split() else {
            return openat(&self.handle, ".", flags, Mode::empty());
        };
        let mut parent_handle: Option<OwnedFd> = None;
        for part in parent.names() {
            let from = parent_handle.as_ref().map_or(self.handle.as_fd(), AsFd::as_fd);
            let next = openat(from, part, DIRECTORY_FLAGS, Mode::empty())?;
            parent_handle = Some(next);
        }
        let from = parent_handle.as_ref().map_or(self.handle.as_fd(), AsFd::as_fd);
        openat(from, last, flags, Mode::empty())
    }
}

fn has_entry(directory: OwnedFd, name: &str) -> Result<bool, Errno> {
    for entry in Dir::new(directory)? {
        if entry?.file_name().to_bytes() == name.as_bytes() {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn check_plain_file(stat: &Stat) -> Result<(), OpenFileError> {
    Err(match file_type(stat) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => OpenFileError::Directory,
        FileType::Symlink => OpenFileError::Errno(Errno::LOOP),
        FileType::Fifo => OpenFileError::Special("a named pipe"),
        FileType::Socket => OpenFileError::Special("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => OpenFileError::Special("a device"),
        FileType::Unknown => OpenFileError::Special("a file of an unknown kind"),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The guarantees hold with and without `openat2`.
    #[test]
    fn no_resolver_follows_links() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("a/b/file"), "text").unwrap();
        symlink("a", at("link")).unwrap();
        symlink("/etc", at("out")).unwrap();
        symlink("a/b/file", at("file")).unwrap();
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        for resolver in [PathResolver::Kernel, PathResolver::Walk] {
            let root = ConfinedDir { resolver, ..ConfinedDir::open(directory.path()).unwrap() };
            let file = |name: &str| root.open_file(&RelPath::parse(name).unwrap()).map(|_| ());
            assert_eq!(file("a/b/file"), Ok(()), "{resolver:?}");
            for name in ["link/b/file", "out/passwd", "file"] {
                let refused = file(name);
                let expect =
                    [Errno::LOOP, Errno::NOTDIR].map(|errno| Err(OpenFileError::Errno(errno)));
                assert!(expect.contains(&refused), "{resolver:?} {name}: {refused:?}");
            }
            assert_eq!(file("a"), Err(OpenFileError::Directory));
            assert_eq!(file("pipe"), Err(OpenFileError::Special("a named pipe")));
            assert_eq!(file("a/missing"), Err(OpenFileError::Errno(Errno::NOENT)));
            let link = root.inspect(&RelPath::parse("out").unwrap()).unwrap();
            assert!(matches!(link, DirEntryKind::Link(to) if to == b"/etc"));
        }
    }

    #[test]
    fn names_are_compared_exactly() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("name"), "").unwrap();
        let root = ConfinedDir::open(directory.path()).unwrap();
        for (name, expect) in [("name", true), ("NAME", false), ("nam", false)] {
            let listed = root.open_directory(&RelPath::root()).unwrap();
            assert_eq!(has_entry(listed, name), Ok(expect), "{name}");
        }
        // A missing path, or one in a plain file, has no other spelling.
        for name in ["name", "NAME", "a/b", "name/below"] {
            assert_eq!(root.has_exact_name(&RelPath::parse(name).unwrap()), Ok(true), "{name}");
        }
        // On a file system that may ignore case, each directory is read.
        let root = ConfinedDir::open(Path::new("/")).unwrap();
        assert_eq!(root.has_exact_name(&RelPath::parse("proc/sys/kernel").unwrap()), Ok(true));
    }

    #[test]
    fn kernel_files_are_refused() {
        let root = ConfinedDir::open(Path::new("/")).unwrap();
        let refused = root.open_file(&RelPath::parse("proc/self/environ").unwrap());
        // `self` is a link; a directory named by a pid is not.
        assert!(matches!(refused, Err(OpenFileError::Errno(Errno::LOOP))), "{refused:?}");
        let own = format!("proc/{}/environ", std::process::id());
        let refused = root.open_file(&RelPath::parse(&own).unwrap());
        assert!(matches!(refused, Err(OpenFileError::Special(_))), "{refused:?}");
    }
}
