//! Opening files beneath a directory, by its handle.
//!
//! Every name is opened with the kernel's own promise (`openat2` with `RESOLVE_BENEATH` and
//! `RESOLVE_NO_SYMLINKS`) that no part of it is a link and nothing leads above the handle. So what was
//! judged by name is what is opened, whoever swaps folders for links meanwhile: a swap makes the call
//! fail. Where the kernel or a container's filter does not have `openat2`, the names are walked one by
//! one, each opened from the handle of the one before and without following a link: the same promise,
//! with a system call for each name.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, mkdirat, openat,
    openat2, readlinkat, statat,
};
use rustix::io::Errno;

use crate::rel_path::RelPath;

/// Looks at something without opening it: nothing happens to a pipe or a device.
const LOOK_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FOLDER_FLAGS: OFlags = LOOK_FLAGS.union(OFlags::DIRECTORY);

/// How often a resolution is tried again that a rename elsewhere disturbed.
const RESOLVE_TRIES: usize = 16;

/// Windows into the kernel that look like files: proc, sysfs, debugfs, tracefs, cgroups, secrets.
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

/// File systems on which a name has one spelling: ext, xfs, btrfs, tmpfs, overlayfs, zfs, f2fs, nfs.
const EXACT_NAME_FILE_SYSTEMS: [i64; 8] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010, 0x6969];

/// The working directory, held.
#[derive(Debug)]
pub(crate) struct ConfinedDir {
    handle: OwnedFd,
    resolver: PathResolver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathResolver {
    Kernel,
    /// Name by name.
    Walk,
}

/// What a name stands for.
#[derive(Debug)]
pub(crate) enum DirEntryKind {
    Missing,
    Link(Vec<u8>),
    Other(Stat),
}

/// What is not a plain file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenFileError {
    Errno(Errno),
    Folder,
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

    /// The same for a whole path that has no link in it, or is refused.
    pub(crate) fn open_without_links(directory: &Path) -> Result<Self, Errno> {
        let path = directory.to_str().and_then(|path| RelPath::parse(path).ok());
        let top = Self::open(Path::new("/"))?;
        let handle = top.open_beneath(&path.ok_or(Errno::INVAL)?, FOLDER_FLAGS)?;
        Ok(Self { handle, ..top })
    }

    /// What is there by that name. A link on the way to it is `ELOOP` or `ENOTDIR`.
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

    /// A plain file to be read. Others are refused before they are opened, and without waiting.
    pub(crate) fn open_file(&self, name: &RelPath) -> Result<(File, Stat), OpenFileError> {
        check_plain_file(&fstat(self.open_beneath(name, LOOK_FLAGS)?)?)?;
        // It may be another one by the time that it is opened.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open_beneath(name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
        let stat = fstat(&file)?;
        check_plain_file(&stat)?;
        if KERNEL_FILE_SYSTEMS.contains(&fstatfs(&file)?.f_type) {
            return Err(OpenFileError::Special("no stored file but a window into the kernel"));
        }
        Ok((File::from(file), stat))
    }

    /// Whether we may write to a file that is there.
    pub(crate) fn may_write(&self, name: &RelPath) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        match self.open_beneath(name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC) {
            // A program that runs can be replaced, if not written to.
            Ok(_) | Err(Errno::TXTBSY) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether what is there, if anything is, is called exactly so. Where capital and small letters are
    /// the same, `.ENV` is `.env`, and a rule would be held against the wrong one.
    pub(crate) fn has_exact_name(&self, name: &RelPath) -> Result<bool, Errno> {
        let mut folder = RelPath::root();
        for part in name.names() {
            let next = folder.join(part);
            match self.open_beneath(&folder, FOLDER_FLAGS) {
                Ok(handle) if EXACT_NAME_FILE_SYSTEMS.contains(&fstatfs(&handle)?.f_type) => (),
                Ok(_) if matches!(self.inspect(&next)?, DirEntryKind::Missing) => return Ok(true),
                Ok(_) if !has_entry(self.open_folder(&folder)?, part)? => return Ok(false),
                Ok(_) => (),
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(true),
                Err(errno) => return Err(errno),
            }
            folder = next;
        }
        Ok(true)
    }

    /// A folder to be read or to make something in.
    pub(crate) fn open_folder(&self, name: &RelPath) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.open_beneath(name, flags)
    }

    /// Makes a folder in one that is there. Says whether it was this call that made it.
    pub(crate) fn make_folder(&self, name: &RelPath) -> Result<bool, Errno> {
        let Some((parent, last)) = name.split() else { return Ok(false) };
        let parent = self.open_beneath(&parent, FOLDER_FLAGS)?;
        match mkdirat(&parent, last, Mode::from_raw_mode(0o777)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => {
                let there = statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW)?;
                if file_type(&there) == FileType::Directory {
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
        let mut above: Option<OwnedFd> = None;
        for part in parent.names() {
            let from = above.as_ref().map_or(self.handle.as_fd(), AsFd::as_fd);
            let next = openat(from, part, FOLDER_FLAGS, Mode::empty())?;
            above = Some(next);
        }
        let from = above.as_ref().map_or(self.handle.as_fd(), AsFd::as_fd);
        openat(from, last, flags, Mode::empty())
    }
}

fn has_entry(folder: OwnedFd, name: &str) -> Result<bool, Errno> {
    for entry in Dir::new(folder)? {
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
        FileType::Directory => OpenFileError::Folder,
        FileType::Symlink => OpenFileError::Errno(Errno::LOOP),
        FileType::Fifo => OpenFileError::Special("a named pipe"),
        FileType::Socket => OpenFileError::Special("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => OpenFileError::Special("a device"),
        FileType::Unknown => OpenFileError::Special("of an unknown kind"),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The same promises with and without `openat2`.
    #[test]
    fn no_link_is_followed_either_way() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("a/b/file"), "text").unwrap();
        symlink("a", at("link")).unwrap();
        symlink("/etc", at("out")).unwrap();
        symlink("a/b/file", at("file")).unwrap();
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        for how in [PathResolver::Kernel, PathResolver::Walk] {
            let root = ConfinedDir { resolver: how, ..ConfinedDir::open(folder.path()).unwrap() };
            let file = |name: &str| root.open_file(&RelPath::parse(name).unwrap()).map(|_| ());
            assert_eq!(file("a/b/file"), Ok(()), "{how:?}");
            for name in ["link/b/file", "out/passwd", "file"] {
                let refused = file(name);
                let expect =
                    [Errno::LOOP, Errno::NOTDIR].map(|errno| Err(OpenFileError::Errno(errno)));
                assert!(expect.contains(&refused), "{how:?} {name}: {refused:?}");
            }
            assert_eq!(file("a"), Err(OpenFileError::Folder));
            assert_eq!(file("pipe"), Err(OpenFileError::Special("a named pipe")));
            assert_eq!(file("a/missing"), Err(OpenFileError::Errno(Errno::NOENT)));
            let link = root.inspect(&RelPath::parse("out").unwrap()).unwrap();
            assert!(matches!(link, DirEntryKind::Link(to) if to == b"/etc"));
        }
    }

    #[test]
    fn a_name_has_one_spelling() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("name"), "").unwrap();
        let root = ConfinedDir::open(folder.path()).unwrap();
        for (name, expect) in [("name", true), ("NAME", false), ("nam", false)] {
            let listed = root.open_folder(&RelPath::root()).unwrap();
            assert_eq!(has_entry(listed, name), Ok(expect), "{name}");
        }
        // What is not there, or is in something that is no folder, has no other spelling.
        for name in ["name", "NAME", "a/b", "name/below"] {
            assert_eq!(root.has_exact_name(&RelPath::parse(name).unwrap()), Ok(true), "{name}");
        }
        // A file system that is not known to be exact is looked into, name by name.
        let root = ConfinedDir::open(Path::new("/")).unwrap();
        assert_eq!(root.has_exact_name(&RelPath::parse("proc/sys/kernel").unwrap()), Ok(true));
    }

    #[test]
    fn what_shows_the_kernel_is_no_file() {
        let root = ConfinedDir::open(Path::new("/")).unwrap();
        let refused = root.open_file(&RelPath::parse("proc/self/environ").unwrap());
        // `self` is a link; a process by its number is not.
        assert!(matches!(refused, Err(OpenFileError::Errno(Errno::LOOP))), "{refused:?}");
        let own = format!("proc/{}/environ", std::process::id());
        let refused = root.open_file(&RelPath::parse(&own).unwrap());
        assert!(matches!(refused, Err(OpenFileError::Special(_))), "{refused:?}");
    }
}
