//! What git and its user leave out: by `.ignore`, `.gitignore` and `.git/info/exclude`, here and above.
//!
//! Those files are read here and not by the walk. They are other people's text like all that is in a
//! workspace: one may be a pipe that nobody writes to, a link to a device without end, or a gigabyte.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{DirEntry, Match};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

use crate::call_deadline::CallDeadline;
use crate::confined_dir::file_type;

/// The most that is read of such files at once, from one folder up to the top.
const TEXT_MAX: usize = 512 * 1024;

/// In the order in which they count. Of each kind the nearest one that speaks of a file decides.
const IGNORE_FILES: [&str; 3] = [".ignore", ".gitignore", ".git/info/exclude"];

/// Decides what a walk passes over.
#[derive(Debug)]
pub(super) struct IgnoreFilter {
    start: PathBuf,
    /// Where that is, without links: rules in the folders above it are those of where it really is.
    canonical_start: PathBuf,
    hidden: bool,
    /// None where nothing is ignored.
    rules: Option<Mutex<IgnoreRules>>,
    deadline: CallDeadline,
}

/// What holds on the way to where the walk is.
#[derive(Debug)]
struct IgnoreRules {
    /// From the top down.
    folders: Vec<IgnoreFolder>,
    /// The user's own, for all that git has.
    global: Gitignore,
}

#[derive(Debug)]
struct IgnoreFolder {
    path: PathBuf,
    rules: [Option<Gitignore>; IGNORE_FILES.len()],
    bytes: usize,
}

impl IgnoreFilter {
    /// For a walk that begins at this path, and shows hidden and ignored files or not.
    pub(super) fn new(start: &Path, (hidden, ignored): (bool, bool), watch: &CallDeadline) -> Self {
        let found = start.canonicalize().unwrap_or_else(|_| start.to_owned());
        let rules = || IgnoreRules { folders: Vec::new(), global: Gitignore::global().0 };
        let rules = (!ignored).then(|| Mutex::new(rules()));
        Self {
            start: start.to_owned(),
            canonical_start: found,
            hidden,
            rules,
            deadline: watch.clone(),
        }
    }

    /// Whether an entry is passed over, with all that is below it.
    pub(super) fn skips(&self, entry: &DirEntry) -> bool {
        if entry.depth() == 0 {
            return false;
        }
        // Where all is ignored nobody else asks for the time.
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
        let (Some(rules), Ok(below)) = (&self.rules, entry.path().strip_prefix(&self.start)) else {
            return Match::None;
        };
        let path = self.canonical_start.join(below);
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let mut rules = rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.enter(path.parent().unwrap_or(&self.canonical_start));
        rules.match_path(&path, is_folder)
    }
}

impl IgnoreRules {
    /// Reads what holds in a folder, and forgets what does not.
    fn enter(&mut self, folder: &Path) {
        while self.folders.last().is_some_and(|last| !folder.starts_with(&last.path)) {
            self.folders.pop();
        }
        let known = self.folders.last().map(|last| last.path.as_path());
        let new: Vec<&Path> = folder.ancestors().take_while(|path| Some(*path) != known).collect();
        for path in new.into_iter().rev() {
            let read: usize = self.folders.iter().map(|folder| folder.bytes).sum();
            self.folders.push(IgnoreFolder::read(path, TEXT_MAX - read));
        }
    }

    fn match_path(&self, path: &Path, is_folder: bool) -> Match<()> {
        let of_kind = |kind: usize| {
            let nearest = self.folders.iter().rev().filter_map(move |one| one.rules[kind].as_ref());
            nearest.map(|rules| rules.matched(path, is_folder)).find(|matched| !matched.is_none())
        };
        let own = (0..IGNORE_FILES.len()).find_map(of_kind);
        own.unwrap_or_else(|| self.global.matched(path, is_folder)).map(|_| ())
    }
}

impl IgnoreFolder {
    fn read(path: &Path, most: usize) -> Self {
        let mut left = most;
        let rules = IGNORE_FILES.map(|name| {
            let text = read_whole_lines(&path.join(name), left)?;
            left -= text.len();
            let mut builder = GitignoreBuilder::new(path);
            let text = String::from_utf8_lossy(&text);
            for line in text.trim_start_matches('\u{feff}').lines() {
                // A line that is no rule is none.
                let _ = builder.add_line(None, line);
            }
            builder.build().ok().filter(|rules| !rules.is_empty())
        });
        Self { path: path.to_owned(), rules, bytes: most - left }
    }
}

/// The beginning of a plain file, by whole lines.
fn read_whole_lines(path: &Path, most: usize) -> Option<Vec<u8>> {
    let is_plain = path.symlink_metadata().is_ok_and(|found| found.is_file());
    if !is_plain {
        return None;
    }
    // It may be another one by now: a pipe is not waited for, a link not followed.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let file = openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()).ok()?;
    if file_type(&fstat(&file).ok()?) != FileType::RegularFile {
        return None;
    }
    let mut text = Vec::new();
    File::from(file).take(most as u64).read_to_end(&mut text).ok()?;
    if text.len() == most {
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        text.truncate(whole);
    }
    Some(text)
}
