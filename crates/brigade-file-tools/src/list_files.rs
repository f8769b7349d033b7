//! The tool that lists files.

use std::time::Duration;

use brigade_model::truncate::truncate_end;
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::FileTool;
use crate::call_deadline::CallDeadline;
use crate::confined_dir::{DirEntryKind, file_type};
use crate::ignore_filter::ShownFiles;
use crate::render::{
    BODY_MAX, errno_error, escape_control_chars, missing_error, pluralize, quote_name,
};
use crate::walk::{FileWalk, PathPattern, WalkControl, WalkEntry};
use crate::working_directory::{LocatedPath, WorkingDirectory};
use brigade_agent::tool::{ExecutionHints, ToolEffect, ToolError};

const LIMIT_DEFAULT: usize = 500;
const LIMIT_MAX: usize = 2_000;
const DEPTH_MAX: usize = 100;
/// The maximum length of a link's target.
const TARGET_MAX: usize = 200;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFiles {
    /// A directory, relative to yours. Default: yours.
    #[serde(default = "directory")]
    path: String,
    /// Only files that match, such as *.rs (by name) or src/**/*.rs (by path), at any depth.
    #[serde(default)]
    glob: Option<String>,
    /// The depth; 1 lists only the directory itself. Default: 1, or unlimited with glob.
    #[serde(default)]
    depth: Option<usize>,
    /// Also list hidden files, whose names begin with a dot.
    #[serde(default)]
    hidden: bool,
    /// Also list files that git ignores.
    #[serde(default)]
    ignored: bool,
    /// The maximum number of entries. Default 500, at most 2000.
    #[serde(default)]
    limit: Option<usize>,
}

pub(super) fn directory() -> String {
    ".".to_owned()
}

impl FileTool for ListFiles {
    const NAME: &'static str = "list_files";
    const DESCRIPTION: &'static str = "List the files of your directory or of one in it, with their \
        sizes; directories end with /. Hidden files and files that git ignores are omitted unless you ask \
        for them. Use it to explore, and with glob to find files by name. The other file tools accept \
        the listed paths. To find files by their content use search_files.";
    const HINTS: ExecutionHints = ExecutionHints::of(ToolEffect::Pure);
    const TIMEOUT: Duration = Duration::from_secs(30);

    fn path(&self) -> &str {
        &self.path
    }

    fn run(
        self,
        working_dir: &WorkingDirectory,
        deadline: &CallDeadline,
    ) -> Result<String, ToolError> {
        let limit = self.limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            let problem = format!("the argument `limit`: give 1 to {LIMIT_MAX}, not {limit}");
            return Err(ToolError::new(problem));
        }
        if self.depth.is_some_and(|depth| !(1..=DEPTH_MAX).contains(&depth)) {
            return Err(ToolError::new(format!("the argument `depth`: give 1 to {DEPTH_MAX}")));
        }
        let pattern = self.glob.as_deref().map(PathPattern::new).transpose()?;
        let located = working_dir.locate(Self::NAME, &self.path)?;
        self.check_directory(&located)?;
        let LocatedPath { root, name: start } = &located;
        let depth = self.depth.or(if pattern.is_some() { None } else { Some(1) });
        let shown = ShownFiles { hidden: self.hidden, ignored: self.ignored };
        let walk = FileWalk { working_dir, root, start, depth, shown, deadline };
        let mut lines: Vec<String> = Vec::new();
        let mut remaining = BODY_MAX;
        let walked = walk.for_each(|entry| {
            let is_match = pattern.as_ref().is_none_or(|pattern| {
                !is_directory(&entry.kind) && pattern.matches(&entry.name, start)
            });
            if !is_match || working_dir.denies(Self::NAME, entry.name.as_str()) {
                return WalkControl::Continue;
            }
            let line = render_line(&entry);
            if lines.len() == limit || line.len() >= remaining {
                return WalkControl::Stop;
            }
            remaining -= line.len() + 1;
            lines.push(line);
            WalkControl::Continue
        });
        let entries = if lines.len() == 1 { "entry" } else { "entries" };
        let mut notes = vec![format!("{}: {} {entries}", quote_name(start.as_str()), lines.len())];
        if walked.is_truncated {
            notes.push(
                "truncated: there are more entries; name a deeper path or give a glob".to_owned(),
            );
        }
        notes.extend(walked.notes());
        lines.push(format!("[{}]", notes.join("; ")));
        Ok(lines.join("\n"))
    }
}

impl ListFiles {
    fn check_directory(&self, LocatedPath { root, name }: &LocatedPath) -> Result<(), ToolError> {
        match root.inspect(name).map_err(|errno| errno_error(root, name, errno))? {
            DirEntryKind::Missing => Err(missing_error(root, name)),
            kind if is_directory(&kind) => match root.open_directory(name) {
                Ok(_) => Ok(()),
                Err(errno) => Err(errno_error(root, name, errno)),
            },
            _ => {
                let name = quote_name(name.as_str());
                Err(ToolError::new(format!("{name} is not a directory; use read_file for files")))
            }
        }
    }
}

fn is_directory(kind: &DirEntryKind) -> bool {
    matches!(kind, DirEntryKind::Other(stat) if file_type(stat) == FileType::Directory)
}

fn render_line(entry: &WalkEntry) -> String {
    let name = escape_control_chars(entry.name.as_str());
    match &entry.kind {
        DirEntryKind::Missing => name,
        DirEntryKind::Link(target) => {
            let target = escape_control_chars(&String::from_utf8_lossy(target));
            format!("{name} -> {}", truncate_end(&target, TARGET_MAX))
        }
        DirEntryKind::Other(stat) => match file_type(stat) {
            FileType::Directory => format!("{name}/"),
            FileType::RegularFile => {
                format!(
                    "{name} ({})",
                    pluralize(u64::try_from(stat.st_size).unwrap_or_default(), "byte")
                )
            }
            FileType::Fifo => format!("{name} (a named pipe)"),
            FileType::Socket => format!("{name} (a socket)"),
            _ => format!("{name} (a device)"),
        },
    }
}
