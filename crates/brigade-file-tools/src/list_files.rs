//! Lists files.

use std::time::Duration;

use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::FileTool;
use crate::call_deadline::CallDeadline;
use crate::confined_dir::{DirEntryKind, file_type};
use crate::render::{
    BODY_MAX, errno_error, escape_control_chars, missing_error, pluralize, quote_name,
};
use crate::walk::{FileWalk, PathPattern, WalkControl, WalkEntry};
use crate::working_directory::{LocatedPath, WorkingDirectory};
use brigade_agent::tool::{ExecutionHints, ToolEffect, ToolError};

const LIMIT_DEFAULT: usize = 500;
const LIMIT_MAX: usize = 2_000;
const DEPTH_MAX: usize = 100;
/// The most that is shown of where a link leads.
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
    /// How deep to go; 1 is what is in the directory itself. Default: 1, or with glob all.
    #[serde(default)]
    depth: Option<usize>,
    /// Also what begins with a dot.
    #[serde(default)]
    hidden: bool,
    /// Also what git is told to ignore.
    #[serde(default)]
    ignored: bool,
    /// How many to list. Default 500, most 2000.
    #[serde(default)]
    limit: Option<usize>,
}

pub(super) fn directory() -> String {
    ".".to_owned()
}

impl FileTool for ListFiles {
    const NAME: &'static str = "list_files";
    const DESCRIPTION: &'static str = "List the files of your directory or one below it, with their sizes; \
        directories end with /. Leaves out hidden files and what git ignores, unless asked for. Use it \
        to find your way, and with glob to find files by name. The paths can be given to the other file \
        tools as they are. Not for finding files by what is in them: search_files does that.";
    const HINTS: ExecutionHints = ExecutionHints::of(ToolEffect::Pure);
    const TIMEOUT: Duration = Duration::from_secs(30);

    fn path(&self) -> &str {
        &self.path
    }

    fn run(self, workspace: &WorkingDirectory, watch: &CallDeadline) -> Result<String, ToolError> {
        let limit = self.limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            let problem = format!("the argument `limit`: give 1 to {LIMIT_MAX}, not {limit}");
            return Err(ToolError::new(problem));
        }
        if self.depth.is_some_and(|depth| !(1..=DEPTH_MAX).contains(&depth)) {
            return Err(ToolError::new(format!("the argument `depth`: give 1 to {DEPTH_MAX}")));
        }
        let pattern = self.glob.as_deref().map(PathPattern::new).transpose()?;
        let located = workspace.locate(Self::NAME, &self.path)?;
        self.check_folder(&located)?;
        let LocatedPath { root, name: start } = &located;
        let depth = self.depth.or(if pattern.is_some() { None } else { Some(1) });
        let (hidden, ignored) = (self.hidden, self.ignored);
        let walk = FileWalk { workspace, root, start, depth, hidden, ignored, deadline: watch };
        let mut lines: Vec<String> = Vec::new();
        let mut room = BODY_MAX;
        let walked = walk.for_each(|met| {
            let is_meant = pattern
                .as_ref()
                .is_none_or(|pattern| !is_folder(&met.kind) && pattern.matches(&met.name, start));
            if !is_meant || workspace.denies(Self::NAME, met.name.as_str()) {
                return WalkControl::Continue;
            }
            let line = render_line(&met);
            if lines.len() == limit || line.len() >= room {
                return WalkControl::Stop;
            }
            room -= line.len() + 1;
            lines.push(line);
            WalkControl::Continue
        });
        let entries = if lines.len() == 1 { "entry" } else { "entries" };
        let mut notes = vec![format!("{}: {} {entries}", quote_name(start.as_str()), lines.len())];
        if walked.is_truncated {
            notes.push("cut: there are more; name a deeper path, or give a glob".to_owned());
        }
        notes.extend(walked.notes());
        lines.push(format!("[{}]", notes.join("; ")));
        Ok(lines.join("\n"))
    }
}

impl ListFiles {
    fn check_folder(&self, LocatedPath { root, name }: &LocatedPath) -> Result<(), ToolError> {
        match root.inspect(name).map_err(|errno| errno_error(root, name, errno))? {
            DirEntryKind::Missing => Err(missing_error(root, name)),
            what if is_folder(&what) => match root.open_folder(name) {
                Ok(_) => Ok(()),
                Err(errno) => Err(errno_error(root, name, errno)),
            },
            _ => {
                let name = quote_name(name.as_str());
                Err(ToolError::new(format!("{name} is no directory; read_file reads files")))
            }
        }
    }
}

fn is_folder(what: &DirEntryKind) -> bool {
    matches!(what, DirEntryKind::Other(stat) if file_type(stat) == FileType::Directory)
}

fn render_line(met: &WalkEntry) -> String {
    let name = escape_control_chars(met.name.as_str());
    match &met.kind {
        DirEntryKind::Missing => name,
        DirEntryKind::Link(target) => {
            let target = escape_control_chars(&String::from_utf8_lossy(target));
            format!("{name} -> {}", &target[..target.floor_char_boundary(TARGET_MAX)])
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
