//! The tool that writes a whole file.

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
    /// The file, relative to your directory. Missing directories are created.
    path: String,
    /// The whole content.
    content: String,
    /// Refuse if the file exists.
    #[serde(default)]
    new: bool,
    /// Refuse unless the existing file has this digest, as read_file reported it.
    #[serde(default)]
    expect: Option<String>,
}

impl FileTool for WriteFile {
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str = "Write a whole file in your directory, new or in place of an \
        existing one. An existing file is replaced in one step and keeps its mode; missing directories \
        are created. With new: true an existing file is not replaced; with expect a file is replaced \
        only if it is unchanged since you read it. To change part of a file use edit_file, which cannot \
        lose the rest.";
    const HINTS: ExecutionHints = ExecutionHints {
        destructive: true,
        exclusive: true,
        ..ExecutionHints::of(ToolEffect::Once)
    };

    fn path(&self) -> &str {
        &self.path
    }

    fn run(
        self,
        working_dir: &WorkingDirectory,
        deadline: &CallDeadline,
    ) -> Result<String, ToolError> {
        if self.content.len() > CONTENT_MAX {
            let problem = format!("the argument `content`: give at most {CONTENT_MAX} bytes");
            return Err(ToolError::new(problem));
        }
        if self.new && self.expect.is_some() {
            return Err(ToolError::new("a new file has no digest; give `new` or `expect`"));
        }
        let located = working_dir.locate(Self::NAME, &self.path)?;
        let LocatedPath { root, name } = &located;
        let entry = root.inspect(name).map_err(|errno| errno_error(root, name, errno))?;
        let content = self.content.as_bytes();
        let shown = quote_name(name.as_str());
        let size = pluralize(content.len() as u64, "byte");
        let reply =
            |verb: &str| Ok(format!("{verb} {shown}: {size}, digest {}.", content_digest(content)));
        let stat = match entry {
            DirEntryKind::Missing if self.expect.is_some() => {
                return Err(ToolError::new(format!("there is no {shown} to replace")));
            }
            DirEntryKind::Missing => {
                replace_file(&located, content, ExpectedFile::Nothing, deadline)?;
                return reply("Created");
            }
            DirEntryKind::Link(_) => return Err(changed_error(name)),
            DirEntryKind::Other(stat) => stat,
        };
        check_writable(&located, &stat)?;
        if !self.new && self.expect.is_none() {
            replace_file(&located, content, ExpectedFile::File(&stat), deadline)?;
            return reply("Replaced");
        }
        let (old, stat) = read_whole_file(root, name, CONTENT_MAX)?;
        if old == content {
            return Ok(format!("{shown} already has exactly this content; nothing was done."));
        }
        if self.new {
            return Err(ToolError::new(format!(
                "{shown} already exists with other content; read it, or omit `new`"
            )));
        }
        check_digest(self.expect.as_deref(), &old, &shown)?;
        replace_file(&located, content, ExpectedFile::Content(&old, &stat), deadline)?;
        reply("Replaced")
    }
}

/// Checks that a file is plain and writable: a replacement would bypass its mode.
pub(super) fn check_writable(
    LocatedPath { root, name }: &LocatedPath,
    stat: &rustix::fs::Stat,
) -> Result<(), ToolError> {
    use rustix::fs::FileType;
    match file_type(stat) {
        FileType::RegularFile => (),
        FileType::Directory => return Err(open_file_error(root, name, OpenFileError::Directory)),
        _ => {
            let special = OpenFileError::Special("a pipe, a socket or a device");
            return Err(open_file_error(root, name, special));
        }
    }
    root.may_write(name).map_err(|errno| errno_error(root, name, errno))
}

/// Checks that a file still has the digest that the caller expects.
pub(super) fn check_digest(expect: Option<&str>, old: &[u8], shown: &str) -> Result<(), ToolError> {
    let digest = content_digest(old);
    match expect {
        Some(expect) if expect.trim() != digest => Err(ToolError::new(format!(
            "{shown} is not what you expect: its digest is {digest}; read it again first"
        ))),
        _ => Ok(()),
    }
}
