//! Replaces a file in one step: readers see the whole old or the whole new content.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use brigade_model::truncate::head_bytes;
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Stat, Uid, fchmod, fchown, fsync, linkat, openat,
    renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use crate::call_deadline::CallDeadline;
use crate::confined_dir::ConfinedDir;
use crate::rel_path::RelPath;
use crate::render::{errno_error, quote_name, read_whole_file};
use crate::working_directory::LocatedPath;
use brigade_agent::tool::ToolError;

/// The required state just before the replacement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExpectedFile<'a> {
    Nothing,
    /// A file whose content may have changed.
    File(&'a Stat),
    /// A file with exactly this content.
    Content(&'a [u8], &'a Stat),
}

/// A lock held from the last comparison of a file to its replacement, so that no other call of this
/// process comes between.
static REPLACE_LOCK: Mutex<()> = Mutex::new(());

/// Writes the content to a draft beside the file and renames it. After an error nothing has
/// changed.
pub(crate) fn replace_file(
    located: &LocatedPath,
    content: &[u8],
    before: ExpectedFile<'_>,
    deadline: &CallDeadline,
) -> Result<(), ToolError> {
    let LocatedPath { root, name } = located;
    let to_error = |errno| errno_error(root, name, errno);
    let Some((directory, last)) = name.split() else { return Err(to_error(Errno::ISDIR)) };
    let created = CreatedDirectories::create(root, &directory)
        .map_err(|(at, errno)| errno_error(root, &at, errno))?;
    let directory = root.open_directory(&directory).map_err(to_error)?;
    let draft = DraftFile::write(&directory, last, content, before).map_err(|error| {
        ToolError::new(format!("{} cannot be written: {error}", quote_name(name.as_str())))
    })?;
    let replace_lock = REPLACE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    if let ExpectedFile::Content(expected, _) = before {
        let unchanged = read_whole_file(root, name, expected.len())
            .is_ok_and(|(current, _)| current == expected);
        if !unchanged {
            return Err(changed_error(name));
        }
    }
    // This is the last step that can be cancelled.
    if !deadline.is_active() {
        return Err(ToolError::new("the call was cancelled, and nothing was changed"));
    }
    match before {
        ExpectedFile::Nothing => draft.rename_to_new(last),
        ExpectedFile::File(_) | ExpectedFile::Content(..) => draft.rename_over(last),
    }
    .map_err(|errno| match errno {
        Errno::EXIST => changed_error(name),
        errno => to_error(errno),
    })?;
    drop(replace_lock);
    created.commit();
    // The content is on disk. Sync its name too before success is reported.
    let _ = fsync(&directory);
    Ok(())
}

pub(crate) fn changed_error(name: &RelPath) -> ToolError {
    let shown = quote_name(name.as_str());
    ToolError::new(format!(
        "somebody else changed {shown} meanwhile, so nothing was written; read it again first"
    ))
}

/// Directories created for a file. They are removed again unless `commit` is called.
struct CreatedDirectories<'a> {
    root: &'a ConfinedDir,
    created: Vec<RelPath>,
}

impl<'a> CreatedDirectories<'a> {
    fn create(root: &'a ConfinedDir, directory: &RelPath) -> Result<Self, (RelPath, Errno)> {
        let mut directories = Self { root, created: Vec::new() };
        if root.open_directory(directory).is_ok() {
            return Ok(directories);
        }
        let mut at = RelPath::root();
        for part in directory.names() {
            at = at.join(part);
            if root.make_directory(&at).map_err(|errno| (at.clone(), errno))? {
                directories.created.push(at.clone());
            }
        }
        Ok(directories)
    }

    fn commit(mut self) {
        self.created.clear();
    }
}

impl Drop for CreatedDirectories<'_> {
    fn drop(&mut self) {
        for created in self.created.iter().rev() {
            let Some((parent, last)) = created.split() else { continue };
            // A directory that is no longer empty stays.
            if let Ok(parent) = self.root.open_directory(&parent) {
                let _ = unlinkat(parent, last, AtFlags::REMOVEDIR);
            }
        }
    }
}

/// The new content in a draft file, deleted unless it is renamed.
struct DraftFile<'a> {
    directory: BorrowedFd<'a>,
    name: Option<String>,
}

static NEXT_DRAFT_NUMBER: AtomicU64 = AtomicU64::new(0);

impl<'a> DraftFile<'a> {
    fn write(
        directory: &'a OwnedFd,
        last: &str,
        content: &[u8],
        before: ExpectedFile<'_>,
    ) -> io::Result<Self> {
        let (draft, file) = Self::create(directory.as_fd(), last)?;
        if let ExpectedFile::File(stat) | ExpectedFile::Content(_, stat) = before {
            copy_owner_and_mode(&file, stat)?;
        }
        let mut file = File::from(file);
        file.write_all(content)?;
        file.sync_all()?;
        Ok(draft)
    }

    fn create(directory: BorrowedFd<'a>, last: &str) -> io::Result<(Self, OwnedFd)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let prefix = head_bytes(last, 100);
        loop {
            let number = NEXT_DRAFT_NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!(".{prefix}.{}-{number}.draft", std::process::id());
            let mode = Mode::from_raw_mode(0o666);
            match openat(directory, name.as_str(), flags | OFlags::CLOEXEC, mode) {
                Ok(file) => return Ok((Self { directory, name: Some(name) }, file)),
                // A killed process with the same pid left it behind.
                Err(Errno::EXIST) => (),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn rename_over(mut self, last: &str) -> Result<(), Errno> {
        let Some(name) = &self.name else { return Ok(()) };
        renameat(self.directory, name.as_str(), self.directory, last)?;
        self.name = None;
        Ok(())
    }

    fn rename_to_new(mut self, last: &str) -> Result<(), Errno> {
        let Some(name) = &self.name else { return Ok(()) };
        let directory = self.directory;
        let flags = RenameFlags::NOREPLACE;
        match renameat_with(directory, name.as_str(), directory, last, flags) {
            // Some file systems lack this flag. Linking is equivalent, and the drop removes the
            // draft.
            Err(Errno::INVAL | Errno::NOSYS) => {
                return linkat(directory, name.as_str(), directory, last, AtFlags::empty());
            }
            renamed => renamed?,
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for DraftFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = unlinkat(self.directory, name.as_str(), AtFlags::empty());
        }
    }
}

fn copy_owner_and_mode(file: &OwnedFd, before: &Stat) -> io::Result<()> {
    let own = rustix::fs::fstat(file)?;
    if (own.st_uid, own.st_gid) != (before.st_uid, before.st_gid) {
        let user = Uid::from_raw(before.st_uid);
        let group = Gid::from_raw(before.st_gid);
        fchown(file, Some(user), Some(group)).map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::other(format!("the file would change its owner or group ({error})"))
        })?;
    }
    fchmod(file, Mode::from_raw_mode(before.st_mode & 0o777))?;
    Ok(())
}
