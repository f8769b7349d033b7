//! Replacing a file in one step: whoever looks sees the old or the new, whole.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Stat, Uid, fchmod, fchown, fsync, linkat, openat,
    renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use crate::call_deadline::CallDeadline;
use crate::confined_dir::ConfinedDir;
use crate::rel_path::RelPath;
use crate::render::{errno_error, quote_name, read_whole_file};
use brigade_agent::tool::ToolError;

/// What must be there in the instant before.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExpectedFile<'a> {
    Nothing,
    /// A file that may have changed meanwhile.
    File(&'a Stat),
    /// A file that must not have.
    Content(&'a [u8], &'a Stat),
}

/// Held from the last look at a file to its replacement: nobody in this process comes between.
static REPLACE_LOCK: Mutex<()> = Mutex::new(());

/// Writes the content beside the file and puts it in its place. An error leaves all as it was.
pub(crate) fn replace_file(
    (root, name): (&ConfinedDir, &RelPath),
    content: &[u8],
    before: ExpectedFile<'_>,
    watch: &CallDeadline,
) -> Result<(), ToolError> {
    let told = |errno| errno_error(root, name, errno);
    let Some((folder, last)) = name.split() else { return Err(told(Errno::ISDIR)) };
    let made = CreatedFolders::create(root, &folder)
        .map_err(|(at, errno)| errno_error(root, &at, errno))?;
    let folder = root.open_folder(&folder).map_err(told)?;
    let draft = DraftFile::write(&folder, last, content, before).map_err(|error| {
        ToolError::new(format!("{} cannot be written: {error}", quote_name(name.as_str())))
    })?;
    let putting = REPLACE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    if let ExpectedFile::Content(expected, _) = before {
        let unchanged =
            read_whole_file(root, name, expected.len()).is_ok_and(|(there, _)| there == expected);
        if !unchanged {
            return Err(changed_error(name));
        }
    }
    // From here on it happens: what nobody wants any more ends before.
    if !watch.is_active() {
        return Err(ToolError::new("the call was given up, and nothing was changed"));
    }
    match before {
        ExpectedFile::Nothing => draft.rename_to_new(last),
        ExpectedFile::File(_) | ExpectedFile::Content(..) => draft.rename_over(last),
    }
    .map_err(|errno| match errno {
        Errno::EXIST => changed_error(name),
        errno => told(errno),
    })?;
    drop(putting);
    made.commit();
    // The file itself is on the disk; its name should be too before anybody is told.
    let _ = fsync(&folder);
    Ok(())
}

pub(crate) fn changed_error(name: &RelPath) -> ToolError {
    let shown = quote_name(name.as_str());
    ToolError::new(format!(
        "somebody else changed {shown} meanwhile, so nothing was written; read it again first"
    ))
}

/// Folders that were made for a file, taken away again unless it comes to be.
struct CreatedFolders<'a> {
    root: &'a ConfinedDir,
    created: Vec<RelPath>,
}

impl<'a> CreatedFolders<'a> {
    fn create(root: &'a ConfinedDir, folder: &RelPath) -> Result<Self, (RelPath, Errno)> {
        let mut folders = Self { root, created: Vec::new() };
        if root.open_folder(folder).is_ok() {
            return Ok(folders);
        }
        let mut at = RelPath::root();
        for part in folder.names() {
            at = at.join(part);
            if root.make_folder(&at).map_err(|errno| (at.clone(), errno))? {
                folders.created.push(at.clone());
            }
        }
        Ok(folders)
    }

    fn commit(mut self) {
        self.created.clear();
    }
}

impl Drop for CreatedFolders<'_> {
    fn drop(&mut self) {
        for made in self.created.iter().rev() {
            let Some((parent, last)) = made.split() else { continue };
            // One that somebody put something in stays.
            if let Ok(parent) = self.root.open_folder(&parent) {
                let _ = unlinkat(parent, last, AtFlags::REMOVEDIR);
            }
        }
    }
}

/// The content in a file of its own, gone unless it is put somewhere.
struct DraftFile<'a> {
    folder: BorrowedFd<'a>,
    name: Option<String>,
}

static NEXT_DRAFT_NUMBER: AtomicU64 = AtomicU64::new(0);

impl<'a> DraftFile<'a> {
    fn write(
        folder: &'a OwnedFd,
        last: &str,
        content: &[u8],
        before: ExpectedFile<'_>,
    ) -> io::Result<Self> {
        let (draft, file) = Self::create(folder.as_fd(), last)?;
        if let ExpectedFile::File(stat) | ExpectedFile::Content(_, stat) = before {
            copy_owner_and_mode(&file, stat)?;
        }
        let mut file = File::from(file);
        file.write_all(content)?;
        file.sync_all()?;
        Ok(draft)
    }

    fn create(folder: BorrowedFd<'a>, last: &str) -> io::Result<(Self, OwnedFd)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let beginning = &last[..last.floor_char_boundary(100)];
        loop {
            let number = NEXT_DRAFT_NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!(".{beginning}.{}-{number}.draft", std::process::id());
            let mode = Mode::from_raw_mode(0o666);
            match openat(folder, name.as_str(), flags | OFlags::CLOEXEC, mode) {
                Ok(file) => return Ok((Self { folder, name: Some(name) }, file)),
                // Left behind by a process with our number, which was killed.
                Err(Errno::EXIST) => (),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn rename_over(mut self, last: &str) -> Result<(), Errno> {
        let Some(name) = &self.name else { return Ok(()) };
        renameat(self.folder, name.as_str(), self.folder, last)?;
        self.name = None;
        Ok(())
    }

    fn rename_to_new(mut self, last: &str) -> Result<(), Errno> {
        let Some(name) = &self.name else { return Ok(()) };
        let (folder, flags) = (self.folder, RenameFlags::NOREPLACE);
        match renameat_with(folder, name.as_str(), folder, last, flags) {
            // Not every file system can. A second name does the same, and the first one goes.
            Err(Errno::INVAL | Errno::NOSYS) => {
                return linkat(folder, name.as_str(), folder, last, AtFlags::empty());
            }
            put => put?,
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for DraftFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = unlinkat(self.folder, name.as_str(), AtFlags::empty());
        }
    }
}

fn copy_owner_and_mode(file: &OwnedFd, before: &Stat) -> io::Result<()> {
    let own = rustix::fs::fstat(file)?;
    if (own.st_uid, own.st_gid) != (before.st_uid, before.st_gid) {
        let (user, group) = (Uid::from_raw(before.st_uid), Gid::from_raw(before.st_gid));
        fchown(file, Some(user), Some(group)).map_err(|errno| {
            let why = io::Error::from(errno);
            io::Error::other(format!("it would change its owner or group ({why})"))
        })?;
    }
    fchmod(file, Mode::from_raw_mode(before.st_mode & 0o777))?;
    Ok(())
}
