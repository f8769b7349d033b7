//! Writes a whole file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::FileTool;
use super::beneath::{Found, NoFile, kind};
use super::replace::{Before, changed, replace};
use super::watch::Watch;
use super::words::{count, digest, failed, no_file, quoted, whole};
use super::workspace::{Located, Workspace};
use crate::tool::{Effect, Hints, ToolError};

pub(super) const CONTENT_MAX: usize = 4 * 1024 * 1024;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    /// The file, relative to your directory. Directories on the way to it are made.
    path: String,
    /// All that is to be in it.
    content: String,
    /// Refuse if there is a file already.
    #[serde(default)]
    new: bool,
    /// Refuse if the file that is there has another digest than this, which read_file told.
    #[serde(default)]
    expect: Option<String>,
}

impl FileTool for WriteFile {
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str = "Write a whole file of your directory: a new one, or in place of what \
        is there. It is replaced in one step and keeps its mode; directories on the way to it are made. \
        With new: true a file that is there is left alone, with expect one that changed since you read \
        it. Not for changing part of a file: edit_file does that, and cannot lose the rest.";
    const HINTS: Hints = Hints { destructive: true, alone: true, ..Hints::of(Effect::Once) };

    fn path(&self) -> &str {
        &self.path
    }

    fn run(self, workspace: &Workspace, watch: &Watch) -> Result<String, ToolError> {
        if self.content.len() > CONTENT_MAX {
            let problem = format!("the argument `content`: {CONTENT_MAX} bytes is the most");
            return Err(ToolError::new(problem));
        }
        if self.new && self.expect.is_some() {
            return Err(ToolError::new("a file that is new has no digest: give `new` or `expect`"));
        }
        let located = workspace.locate(Self::NAME, &self.path)?;
        let Located { root, name } = &located;
        let there = root.look(name).map_err(|errno| failed(root, name, errno))?;
        let content = self.content.as_bytes();
        let shown = quoted(name.as_str());
        let size = count(content.len() as u64, "byte");
        let wrote = |how: &str| Ok(format!("{how} {shown}: {size}, digest {}.", digest(content)));
        let stat = match there {
            Found::Nothing if self.expect.is_some() => {
                return Err(ToolError::new(format!("there is no {shown} to be replaced")));
            }
            Found::Nothing => {
                replace((root, name), content, Before::Nothing, watch)?;
                return wrote("Created");
            }
            Found::Link(_) => return Err(changed(name)),
            Found::Other(stat) => stat,
        };
        must_be_writable(&located, &stat)?;
        if !self.new && self.expect.is_none() {
            replace((root, name), content, Before::File(&stat), watch)?;
            return wrote("Replaced");
        }
        let (old, stat) = whole(root, name, CONTENT_MAX)?;
        if old == content {
            return Ok(format!("{shown} has exactly this content already; nothing was done."));
        }
        if self.new {
            return Err(ToolError::new(format!(
                "{shown} is there already, with other content; read it, or leave out `new`"
            )));
        }
        expected(self.expect.as_deref(), &old, &shown)?;
        replace((root, name), content, Before::Content(&old, &stat), watch)?;
        wrote("Replaced")
    }
}

/// A plain file that we may write to: replacing one would otherwise get around its mode.
pub(super) fn must_be_writable(
    Located { root, name }: &Located,
    stat: &rustix::fs::Stat,
) -> Result<(), ToolError> {
    use rustix::fs::FileType;
    match kind(stat) {
        FileType::RegularFile => (),
        FileType::Directory => return Err(no_file(root, name, NoFile::Folder)),
        _ => {
            let special = NoFile::Special("a pipe, a socket or a device");
            return Err(no_file(root, name, special));
        }
    }
    root.may_write(name).map_err(|errno| failed(root, name, errno))
}

/// Whether a file is still what the caller knows.
pub(super) fn expected(expect: Option<&str>, old: &[u8], shown: &str) -> Result<(), ToolError> {
    let there = digest(old);
    match expect {
        Some(expect) if expect.trim() != there => Err(ToolError::new(format!(
            "{shown} is not what you expect: its digest is {there}; read it again first"
        ))),
        _ => Ok(()),
    }
}
