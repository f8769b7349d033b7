//! The files that git and its user ignore: by `.ignore`, `.gitignore` and `.git/info/exclude`, here
//! and in parent directories.
//!
//! This module reads those files, not the walk. Their content is untrusted: one may be a pipe
//! without a writer, a link to an endless device, or a gigabyte long.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{DirEntry, Match};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

use crate::call_deadline::CallDeadline;
use crate::confined_dir::file_type;

/// The maximum size of the ignore files of one directory and its parents.
const TEXT_MAX: usize = 512 * 1024;

/// Ignore files in the order of precedence. For each kind, the nearest matching file decides.
const IGNORE_FILES: [&str; 3] = [".ignore", ".gitignore", ".git/info/exclude"];

/// A filter that decides which entries a walk skips.
#[derive(Debug)]
pub(super) struct IgnoreFilter {
    start: PathBuf,
    /// The start without links. Ignore files of its real parents apply.
    canonical_start: PathBuf,
    hidden: bool,
    /// `None` if ignored files are shown.
    rules: Option<Mutex<IgnoreRules>>,
    deadline: CallDeadline,
}

/// The rules of the current directory and its parents.
#[derive(Debug)]
struct IgnoreRules {
    /// The directories from the top down.
    directories: Vec<IgnoreDirectory>,
    /// The user's global git rules.
    global: Gitignore,
}

/// The files that a walk shows in addition.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShownFiles {
    pub(super) hidden: bool,
    pub(super) ignored: bool,
}

#[derive(Debug)]
struct IgnoreDirectory {
    path: PathBuf,
    rules: [Option<Gitignore>; IGNORE_FILES.len()],
    bytes: usize,
}

impl IgnoreFilter {
    /// Creates the filter of a walk that starts at this path.
    pub(super) fn new(start: &Path, shown: ShownFiles, deadline: &CallDeadline) -> Self {
        let canonical_start = start.canonicalize().unwrap_or_else(|_| start.to_owned());
        let rules = || IgnoreRules { directories: Vec::new(), global: Gitignore::global().0 };
        let rules = (!shown.ignored).then(|| Mutex::new(rules()));
        Self {
            start: start.to_owned(),
            canonical_start,
            hidden: shown.hidden,
            rules,
            deadline: deadline.clone(),
        }
    }

    /// Returns true if an entry is skipped, with everything in it.
    pub(super) fn skips(&self, entry: &DirEntry) -> bool {
        if entry.depth() == 0 {
            return false;
        }
        // Where everything is ignored, only this check ends the walk in time.
        if entry.file_name() == ".git" || self.deadline.aborted().is_some() {
            return true;
        }
        let is_hidden = || !self.hidden && entry.file_name().as_encoded_bytes().starts_with(b".");
        match self.match_rules(entry) {
            Match::Ignore(()) => true,
            Match::Whitelist(()) => false,
            Match::None => is_hidden(),
        }
    }

    fn match_rules(&self, entry: &DirEntry) -> Match<()> {
        let (Some(rules), Ok(relative)) = (&self.rules, entry.path().strip_prefix(&self.start))
        else {
            return Match::None;
        };
        let path = self.canonical_start.join(relative);
        let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
        let mut rules = rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.enter(path.parent().unwrap_or(&self.canonical_start));
        rules.match_path(&path, is_directory)
    }
}

impl IgnoreRules {
    /// Reads the rules of a directory and its parents, and drops those of others.
    fn enter(&mut self, directory: &Path) {
        while self.directories.last().is_some_and(|last| !directory.starts_with(&last.path)) {
            self.directories.pop();
        }
        let known = self.directories.last().map(|last| last.path.as_path());
        let new: Vec<&Path> =
            directory.ancestors().take_while(|path| Some(*path) != known).collect();
        for path in new.into_iter().rev() {
            let read: usize = self.directories.iter().map(|directory| directory.bytes).sum();
            self.directories.push(IgnoreDirectory::read(path, TEXT_MAX - read));
        }
    }

    fn match_path(&self, path: &Path, is_directory: bool) -> Match<()> {
        let of_kind = |kind: usize| {
            let nearest = self
                .directories
                .iter()
                .rev()
                .filter_map(move |directory| directory.rules[kind].as_ref());
            nearest
                .map(|rules| rules.matched(path, is_directory))
                .find(|matched| !matched.is_none())
        };
        let own = (0..IGNORE_FILES.len()).find_map(of_kind);
        own.unwrap_or_else(|| self.global.matched(path, is_directory)).map(|_| ())
    }
}

impl IgnoreDirectory {
    fn read(path: &Path, max: usize) -> Self {
        let mut remaining = max;
        let rules = IGNORE_FILES.map(|name| {
            let text = read_whole_lines(&path.join(name), remaining)?;
            remaining -= text.len();
            let mut builder = GitignoreBuilder::new(path);
            let text = String::from_utf8_lossy(&text);
            for line in text.trim_start_matches('\u{feff}').lines() {
                // Invalid lines are ignored.
                let _ = builder.add_line(None, line);
            }
            builder.build().ok().filter(|rules| !rules.is_empty())
        });
        Self { path: path.to_owned(), rules, bytes: max - remaining }
    }
}

/// Reads the beginning of a plain file, in whole lines.
fn read_whole_lines(path: &Path, max: usize) -> Option<Vec<u8>> {
    let is_plain = path.symlink_metadata().is_ok_and(|found| found.is_file());
    if !is_plain {
        return None;
    }
    // The file may have been replaced: do not wait for a pipe or follow a link.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let file = openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()).ok()?;
    if file_type(&fstat(&file).ok()?) != FileType::RegularFile {
        return None;
    }
    let mut text = Vec::new();
    File::from(file).take(max as u64).read_to_end(&mut text).ok()?;
    if text.len() == max {
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        text.truncate(whole);
    }
    Some(text)
}
