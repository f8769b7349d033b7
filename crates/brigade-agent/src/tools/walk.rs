//! Going through the files below a folder, as git and its user see them.
//!
//! The walk itself goes by paths. Whatever it comes across is looked at again beneath the directory's
//! handle before anything is said of it: a folder that is swapped for a link meanwhile shows nothing of
//! what is behind it.

use std::path::Path;

use globset::{Glob, GlobBuilder, GlobMatcher};
use ignore::WalkBuilder;

use super::beneath::{Found, Root};
use super::ignoring::Ignoring;
use super::inside::Inside;
use super::watch::{Over, Watch};
use super::workspace::Workspace;
use crate::tool::ToolError;

/// What is gone through.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) root: &'a Root,
    /// A folder, or one file.
    pub(crate) start: &'a Inside,
    pub(crate) depth: Option<usize>,
    pub(crate) hidden: bool,
    pub(crate) ignored: bool,
    pub(crate) watch: &'a Watch,
}

/// Something that was come across.
#[derive(Debug)]
pub(crate) struct Met {
    pub(crate) name: Inside,
    pub(crate) what: Found,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Go {
    On,
    Enough,
}

/// What was left out, and why the walk ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    pub(crate) unreadable: u64,
    pub(crate) nameless: u64,
    pub(crate) over: Option<Over>,
    pub(crate) is_cut: bool,
}

impl Walk<'_> {
    /// In the order of the names, so that the same files are always told in the same way.
    pub(crate) fn each(&self, mut visit: impl FnMut(Met) -> Go) -> Walked {
        let mut walked = Walked::default();
        for entry in self.walker() {
            if let Some(over) = self.watch.over() {
                walked.over = Some(over);
                break;
            }
            let Ok(entry) = entry else {
                walked.unreadable += 1;
                continue;
            };
            if entry.depth() == 0 && entry.file_type().is_some_and(|kind| kind.is_dir()) {
                continue;
            }
            let Some(name) = self.inside(entry.path()) else {
                walked.nameless += 1;
                continue;
            };
            let what = match self.root.look(&name) {
                Ok(Found::Nothing) | Err(_) => continue,
                Ok(what) => what,
            };
            if visit(Met { name, what }) == Go::Enough {
                walked.is_cut = true;
                break;
            }
        }
        if walked.over.is_none() && !walked.is_cut {
            walked.over = self.watch.over();
        }
        walked
    }

    fn walker(&self) -> ignore::Walk {
        let start = self
            .start
            .names()
            .fold(self.workspace.directory().to_owned(), |path, name| path.join(name));
        let ignoring = Ignoring::new(&start, (self.hidden, self.ignored), self.watch);
        let mut builder = WalkBuilder::new(start);
        builder
            .standard_filters(false)
            .follow_links(false)
            .max_depth(self.depth)
            .sort_by_file_name(Ord::cmp)
            .filter_entry(move |entry| !ignoring.passes_over(entry));
        builder.build()
    }

    /// `None` for a name that is not UTF-8: no rule can be held against it, and no model can say it.
    fn inside(&self, path: &Path) -> Option<Inside> {
        let below = path.strip_prefix(self.workspace.directory()).ok()?;
        Inside::read(below.to_str()?).ok()
    }
}

impl Walked {
    /// What is to be said beside the results.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.over == Some(Over::TimeIsUp) {
            notes.push(
                "the time was up before everything was looked at; name a smaller path".into(),
            );
        }
        if self.unreadable > 0 {
            notes.push(format!("{} could not be read", self.unreadable));
        }
        if self.nameless > 0 {
            notes.push(format!("{} left out, whose names are not UTF-8", self.nameless));
        }
        notes
    }
}

/// Which files are meant: by their path below the start, or by their name alone if the pattern has no
/// slash.
#[derive(Debug)]
pub(crate) struct Pattern {
    glob: GlobMatcher,
    by_name: bool,
}

impl Pattern {
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

    pub(crate) fn means(&self, name: &Inside, start: &Inside) -> bool {
        let Some((_, last)) = name.split() else { return false };
        if self.by_name {
            return self.glob.is_match(last);
        }
        let below = Inside::of(name.names().skip(start.names().count()));
        self.glob.is_match(below.as_str())
    }
}
