//! Going through the files below a folder, as git and its user see them.
//!
//! The walk itself goes by paths. Whatever it comes across is looked at again beneath the directory's
//! handle before anything is said of it: a folder that is swapped for a link meanwhile shows nothing of
//! what is behind it.

use std::path::Path;

use globset::{Glob, GlobBuilder, GlobMatcher};
use ignore::WalkBuilder;

use crate::call_deadline::{Aborted, CallDeadline};
use crate::confined_dir::{ConfinedDir, DirEntryKind};
use crate::ignore_filter::IgnoreFilter;
use crate::rel_path::RelPath;
use crate::working_directory::WorkingDirectory;
use brigade_agent::tool::ToolError;

/// What is gone through.
#[derive(Debug)]
pub(crate) struct FileWalk<'a> {
    pub(crate) workspace: &'a WorkingDirectory,
    pub(crate) root: &'a ConfinedDir,
    /// A folder, or one file.
    pub(crate) start: &'a RelPath,
    pub(crate) depth: Option<usize>,
    pub(crate) hidden: bool,
    pub(crate) ignored: bool,
    pub(crate) deadline: &'a CallDeadline,
}

/// Something that was come across.
#[derive(Debug)]
pub(crate) struct WalkEntry {
    pub(crate) name: RelPath,
    pub(crate) kind: DirEntryKind,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkControl {
    Continue,
    Stop,
}

/// What was left out, and why the walk ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkSummary {
    pub(crate) unreadable: u64,
    pub(crate) not_utf8: u64,
    pub(crate) aborted: Option<Aborted>,
    pub(crate) is_truncated: bool,
}

impl FileWalk<'_> {
    /// In the order of the names, so that the same files are always told in the same way.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(WalkEntry) -> WalkControl) -> WalkSummary {
        let mut walked = WalkSummary::default();
        for entry in self.walker() {
            if let Some(over) = self.deadline.aborted() {
                walked.aborted = Some(over);
                break;
            }
            let Ok(entry) = entry else {
                walked.unreadable += 1;
                continue;
            };
            if entry.depth() == 0 && entry.file_type().is_some_and(|kind| kind.is_dir()) {
                continue;
            }
            let Some(name) = self.relative_path(entry.path()) else {
                walked.not_utf8 += 1;
                continue;
            };
            let what = match self.root.inspect(&name) {
                Ok(DirEntryKind::Missing) | Err(_) => continue,
                Ok(what) => what,
            };
            if visit(WalkEntry { name, kind: what }) == WalkControl::Stop {
                walked.is_truncated = true;
                break;
            }
        }
        if walked.aborted.is_none() && !walked.is_truncated {
            walked.aborted = self.deadline.aborted();
        }
        walked
    }

    fn walker(&self) -> ignore::Walk {
        let start = self
            .start
            .names()
            .fold(self.workspace.directory().to_owned(), |path, name| path.join(name));
        let ignoring = IgnoreFilter::new(&start, (self.hidden, self.ignored), self.deadline);
        let mut builder = WalkBuilder::new(start);
        builder
            .standard_filters(false)
            .follow_links(false)
            .max_depth(self.depth)
            .sort_by_file_name(Ord::cmp)
            .filter_entry(move |entry| !ignoring.skips(entry));
        builder.build()
    }

    /// `None` for a name that is not UTF-8: no rule can be held against it, and no model can say it.
    fn relative_path(&self, path: &Path) -> Option<RelPath> {
        let below = path.strip_prefix(self.workspace.directory()).ok()?;
        RelPath::parse(below.to_str()?).ok()
    }
}

impl WalkSummary {
    /// What is to be said beside the results.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.aborted == Some(Aborted::TimedOut) {
            notes.push(
                "the time was up before everything was looked at; name a smaller path".into(),
            );
        }
        if self.unreadable > 0 {
            notes.push(format!("{} could not be read", self.unreadable));
        }
        if self.not_utf8 > 0 {
            notes.push(format!("{} left out, whose names are not UTF-8", self.not_utf8));
        }
        notes
    }
}

/// Which files are meant: by their path below the start, or by their name alone if the pattern has no
/// slash.
#[derive(Debug)]
pub(crate) struct PathPattern {
    glob: GlobMatcher,
    by_name: bool,
}

impl PathPattern {
    pub(crate) fn new(glob: &str) -> Result<Self, ToolError> {
        let built = GlobBuilder::new(glob.trim_start_matches("./")).literal_separator(true).build();
        let wrong = |error: &dyn std::fmt::Display| {
            ToolError::new(format!(
                "the argument `glob`: {error}; write it as `*.rs` or `src/**/*.rs`"
            ))
        };
        if glob.trim().is_empty() {
            return Err(wrong(&"it is blank"));
        }
        let glob: Glob = built.map_err(|error| wrong(&error))?;
        Ok(Self { by_name: !glob.glob().contains('/'), glob: glob.compile_matcher() })
    }

    pub(crate) fn matches(&self, name: &RelPath, start: &RelPath) -> bool {
        let Some((_, last)) = name.split() else { return false };
        if self.by_name {
            return self.glob.is_match(last);
        }
        let below = RelPath::from_names(name.names().skip(start.names().count()));
        self.glob.is_match(below.as_str())
    }
}
