//! Lists files.

use std::time::Duration;

use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;

use super::FileTool;
use super::beneath::{Found, kind};
use super::walk::{Go, Met, Pattern, Walk};
use super::watch::Watch;
use super::words::{BODY_MAX, count, failed, missing, plain, quoted};
use super::workspace::{Located, Workspace};
use crate::tool::{Effect, Hints, ToolError};

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
    const HINTS: Hints = Hints::of(Effect::Pure);
    const PATIENCE: Duration = Duration::from_secs(30);

    fn path(&self) -> &str {
        &self.path
    }

    fn run(self, workspace: &Workspace, watch: &Watch) -> Result<String, ToolError> {
        let limit = self.limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            let problem = format!("the argument `limit`: give 1 to {LIMIT_MAX}, not {limit}");
            return Err(ToolError::new(problem));
        }
        if self.depth.is_some_and(|depth| !(1..=DEPTH_MAX).contains(&depth)) {
            return Err(ToolError::new(format!("the argument `depth`: give 1 to {DEPTH_MAX}")));
        }
        let pattern = self.glob.as_deref().map(Pattern::new).transpose()?;
        let located = workspace.locate(Self::NAME, &self.path)?;
        self.must_be_folder(&located)?;
        let Located { root, name: start } = &located;
        let depth = self.depth.or(if pattern.is_some() { None } else { Some(1) });
        let (hidden, ignored) = (self.hidden, self.ignored);
        let walk = Walk { workspace, root, start, depth, hidden, ignored, watch };
        let mut lines: Vec<String> = Vec::new();
        let mut room = BODY_MAX;
        let walked = walk.each(|met| {
            let is_meant = pattern
                .as_ref()
                .is_none_or(|pattern| !is_folder(&met.what) && pattern.means(&met.name, start));
            if !is_meant || workspace.denies(Self::NAME, met.name.as_str()) {
                return Go::On;
            }
            let line = line(&met);
            if lines.len() == limit || line.len() >= room {
                return Go::Enough;
            }
            room -= line.len() + 1;
            lines.push(line);
            Go::On
        });
        let entries = if lines.len() == 1 { "entry" } else { "entries" };
        let mut notes = vec![format!("{}: {} {entries}", quoted(start.as_str()), lines.len())];
        if walked.is_cut {
            notes.push("cut: there are more; name a deeper path, or give a glob".to_owned());
        }
        notes.extend(walked.notes());
        lines.push(format!("[{}]", notes.join("; ")));
        Ok(lines.join("\n"))
    }
}

impl ListFiles {
    fn must_be_folder(&self, Located { root, name }: &Located) -> Result<(), ToolError> {
        match root.look(name).map_err(|errno| failed(root, name, errno))? {
            Found::Nothing => Err(missing(root, name)),
            what if is_folder(&what) => match root.folder(name) {
                Ok(_) => Ok(()),
                Err(errno) => Err(failed(root, name, errno)),
            },
            _ => {
                let name = quoted(name.as_str());
                Err(ToolError::new(format!("{name} is no directory; read_file reads files")))
            }
        }
    }
}

fn is_folder(what: &Found) -> bool {
    matches!(what, Found::Other(stat) if kind(stat) == FileType::Directory)
}

fn line(met: &Met) -> String {
    let name = plain(met.name.as_str());
    match &met.what {
        Found::Nothing => name,
        Found::Link(target) => {
            let target = plain(&String::from_utf8_lossy(target));
            format!("{name} -> {}", &target[..target.floor_char_boundary(TARGET_MAX)])
        }
        Found::Other(stat) => match kind(stat) {
            FileType::Directory => format!("{name}/"),
            FileType::RegularFile => {
                format!(
                    "{name} ({})",
                    count(u64::try_from(stat.st_size).unwrap_or_default(), "byte")
                )
            }
            FileType::Fifo => format!("{name} (a named pipe)"),
            FileType::Socket => format!("{name} (a socket)"),
            _ => format!("{name} (a device)"),
        },
    }
}
