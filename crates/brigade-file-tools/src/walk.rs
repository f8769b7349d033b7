//! Walks the files in a directory, without those that git and its user ignore.
//!
//! The walk uses paths. Each entry is inspected again beneath the directory's handle before it is
//! reported. A directory that is swapped for a link meanwhile therefore reveals nothing behind the
//! link.

use std::path::Path;

use globset::{Glob, GlobBuilder, GlobMatcher};
use ignore::WalkBuilder;

use crate::call_deadline::{Aborted, CallDeadline};
use crate::confined_dir::{ConfinedDir, DirEntryKind};
use crate::ignore_filter::{IgnoreFilter, ShownFiles};
use crate::rel_path::RelPath;
use crate::working_directory::WorkingDirectory;
use brigade_agent::tool::ToolError;

/// The parameters of a walk.
#[derive(Debug)]
pub(crate) struct FileWalk<'a> {
    pub(crate) working_dir: &'a WorkingDirectory,
    pub(crate) root: &'a ConfinedDir,
    /// A directory or one file.
    pub(crate) start: &'a RelPath,
    pub(crate) depth: Option<usize>,
    pub(crate) shown: ShownFiles,
    pub(crate) deadline: &'a CallDeadline,
}

#[derive(Debug)]
pub(crate) struct WalkEntry {
    pub(crate) name: RelPath,
    pub(crate) kind: DirEntryKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkControl {
    Continue,
    Stop,
}

/// The skipped entries, and the reason of the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkSummary {
    pub(crate) unreadable: u64,
    pub(crate) not_utf8: u64,
    pub(crate) aborted: Option<Aborted>,
    pub(crate) is_truncated: bool,
}

impl FileWalk<'_> {
    /// Visits the entries in the order of their names, so that replies are stable.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(WalkEntry) -> WalkControl) -> WalkSummary {
        let mut walked = WalkSummary::default();
        for entry in self.walker() {
            if let Some(aborted) = self.deadline.aborted() {
                walked.aborted = Some(aborted);
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
            let kind = match self.root.inspect(&name) {
                Ok(DirEntryKind::Missing) | Err(_) => continue,
                Ok(kind) => kind,
            };
            if visit(WalkEntry { name, kind }) == WalkControl::Stop {
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
            .fold(self.working_dir.directory().to_owned(), |path, name| path.join(name));
        let filter = IgnoreFilter::new(&start, self.shown, self.deadline);
        let mut builder = WalkBuilder::new(start);
        builder
            .standard_filters(false)
            .follow_links(false)
            .max_depth(self.depth)
            .sort_by_file_name(Ord::cmp)
            .filter_entry(move |entry| !filter.skips(entry));
        builder.build()
    }

    /// Returns `None` for a name that is not UTF-8: rules and models cannot express it.
    fn relative_path(&self, path: &Path) -> Option<RelPath> {
        let relative = path.strip_prefix(self.working_dir.directory()).ok()?;
        RelPath::parse(relative.to_str()?).ok()
    }
}

impl WalkSummary {
    /// Returns the notes beside the results.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.aborted == Some(Aborted::TimedOut) {
            notes.push(
                "the time limit was reached before everything was visited; name a smaller path"
                    .into(),
            );
        }
        if self.unreadable > 0 {
            notes.push(format!("unreadable entries: {}", self.unreadable));
        }
        if self.not_utf8 > 0 {
            notes.push(format!("omitted names that are not UTF-8: {}", self.not_utf8));
        }
        notes
    }
}

/// A glob, matched against the path below the start, or against the name if it has no slash.
#[derive(Debug)]
pub(crate) struct PathPattern {
    glob: GlobMatcher,
    by_name: bool,
}

impl PathPattern {
    pub(crate) fn new(glob: &str) -> Result<Self, ToolError> {
        let built = GlobBuilder::new(glob.trim_start_matches("./")).literal_separator(true).build();
        let invalid = |error: &dyn std::fmt::Display| {
            ToolError::new(format!(
                "the argument `glob`: {error}; write it as `*.rs` or `src/**/*.rs`"
            ))
        };
        if glob.trim().is_empty() {
            return Err(invalid(&"it is blank"));
        }
        let glob: Glob = built.map_err(|error| invalid(&error))?;
        Ok(Self { by_name: !glob.glob().contains('/'), glob: glob.compile_matcher() })
    }

    pub(crate) fn matches(&self, name: &RelPath, start: &RelPath) -> bool {
        let Some((_, last)) = name.split() else { return false };
        if self.by_name {
            return self.glob.is_match(last);
        }
        let relative = RelPath::from_names(name.names().skip(start.names().count()));
        self.glob.is_match(relative.as_str())
    }
}
