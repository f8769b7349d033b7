//! Writes a whole file.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::FileTool;
use crate::atomic_replace::{ExpectedFile, changed_error, replace_file};
use crate::call_deadline::CallDeadline;
use crate::confined_dir::{DirEntryKind, OpenFileError, file_type};
use crate::render::{
    content_digest, errno_error, open_file_error, pluralize, quote_name, read_whole_file,
};
use crate::working_directory::{LocatedPath, WorkingDirectory};
use brigade_agent::tool::{ExecutionHints, ToolEffect, ToolError};

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
    const HINTS: ExecutionHints = ExecutionHints {
        destructive: true,
        exclusive: true,
        ..ExecutionHints::of(ToolEffect::Once)
    };

    fn path(&self) -> &str {
        &self.path
    }

    fn run(self, workspace: &WorkingDirectory, watch: &CallDeadline) -> Result<String, ToolError> {
        if self.content.len() > CONTENT_MAX {
            let problem = format!("the argument `content`: {CONTENT_MAX} bytes is the most");
            return Err(ToolError::new(problem));
        }
        if self.new && self.expect.is_some() {
            return Err(ToolError::new("a file that is new has no digest: give `new` or `expect`"));
        }
        let located = workspace.locate(Self::NAME, &self.path)?;
        let LocatedPath { root, name } = &located;
        let there = root.inspect(name).map_err(|errno| errno_error(root, name, errno))?;
        let content = self.content.as_bytes();
        let shown = quote_name(name.as_str());
        let size = pluralize(content.len() as u64, "byte");
        let wrote =
            |how: &str| Ok(format!("{how} {shown}: {size}, digest {}.", content_digest(content)));
        let stat = match there {
            DirEntryKind::Missing if self.expect.is_some() => {
                return Err(ToolError::new(format!("there is no {shown} to be replaced")));
            }
            DirEntryKind::Missing => {
                replace_file((root, name), content, ExpectedFile::Nothing, watch)?;
                return wrote("Created");
            }
            DirEntryKind::Link(_) => return Err(changed_error(name)),
            DirEntryKind::Other(stat) => stat,
        };
        check_writable(&located, &stat)?;
        if !self.new && self.expect.is_none() {
            replace_file((root, name), content, ExpectedFile::File(&stat), watch)?;
            return wrote("Replaced");
        }
        let (old, stat) = read_whole_file(root, name, CONTENT_MAX)?;
        if old == content {
            return Ok(format!("{shown} has exactly this content already; nothing was done."));
        }
        if self.new {
            return Err(ToolError::new(format!(
                "{shown} is there already, with other content; read it, or leave out `new`"
            )));
        }
        check_digest(self.expect.as_deref(), &old, &shown)?;
        replace_file((root, name), content, ExpectedFile::Content(&old, &stat), watch)?;
        wrote("Replaced")
    }
}

/// A plain file that we may write to: replacing one would otherwise get around its mode.
pub(super) fn check_writable(
    LocatedPath { root, name }: &LocatedPath,
    stat: &rustix::fs::Stat,
) -> Result<(), ToolError> {
    use rustix::fs::FileType;
    match file_type(stat) {
        FileType::RegularFile => (),
        FileType::Directory => return Err(open_file_error(root, name, OpenFileError::Folder)),
        _ => {
            let special = OpenFileError::Special("a pipe, a socket or a device");
            return Err(open_file_error(root, name, special));
        }
    }
    root.may_write(name).map_err(|errno| errno_error(root, name, errno))
}

/// Whether a file is still what the caller knows.
pub(super) fn check_digest(expect: Option<&str>, old: &[u8], shown: &str) -> Result<(), ToolError> {
    let there = content_digest(old);
    match expect {
        Some(expect) if expect.trim() != there => Err(ToolError::new(format!(
            "{shown} is not what you expect: its digest is {there}; read it again first"
        ))),
        _ => Ok(()),
    }
}
