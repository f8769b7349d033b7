//! The tool that changes parts of a file.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::FileTool;
use crate::atomic_replace::{ExpectedFile, replace_file};
use crate::call_deadline::CallDeadline;
use crate::render::{binary_kind, content_digest, pluralize, quote_name, read_whole_file};
use crate::text_edit::{TextEdit, apply_edits};
use crate::working_directory::{LocatedPath, WorkingDirectory};
use crate::write_file::{CONTENT_MAX, check_digest, check_writable};
use brigade_agent::tool::{ExecutionHints, ToolEffect, ToolError};

const EDITS_MAX: usize = 100;
/// The maximum number of line numbers in the reply.
const LINES_SHOWN: usize = 20;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFile {
    /// The file, relative to your directory.
    path: String,
    /// Replacements, applied in order, each to the result of the previous ones; all or none.
    edits: Vec<TextEdit>,
    /// Refuse unless the file has this digest, as read_file reported it.
    #[serde(default)]
    expect: Option<String>,
}

impl FileTool for EditFile {
    const NAME: &'static str = "edit_file";
    const DESCRIPTION: &'static str = "Change parts of a text file in your directory. Each edit replaces \
        a text that occurs exactly once in the file, or every occurrence with all: true. All edits of a \
        call are applied in one step, or none. Line ends, byte order mark and mode are kept. Read the \
        file first. If somebody else changes it meanwhile, nothing is written and you get an error. For \
        new files or a complete replacement use write_file.";
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
        if !(1..=EDITS_MAX).contains(&self.edits.len()) {
            let problem = format!("the argument `edits`: give 1 to {EDITS_MAX} edits");
            return Err(ToolError::new(problem));
        }
        let located = working_dir.locate(Self::NAME, &self.path)?;
        let LocatedPath { root, name } = &located;
        let shown = quote_name(name.as_str());
        let (old, stat) = read_whole_file(root, name, CONTENT_MAX)?;
        check_writable(&located, &stat)?;
        if let Some(kind) = binary_kind(&old) {
            return Err(ToolError::new(format!("{shown} is a binary file: {kind}")));
        }
        check_digest(self.expect.as_deref(), &old, &shown)?;
        let edited = apply_edits(&old, &self.edits, CONTENT_MAX)
            .map_err(|problem| ToolError::new(format!("{shown} was not changed: {problem}")))?;
        if edited.content == old {
            let problem = format!("{shown} was not changed: the edits undo each other");
            return Err(ToolError::new(problem));
        }
        replace_file(&located, &edited.content, ExpectedFile::Content(&old, &stat), deadline)?;
        let lines: Vec<String> =
            edited.lines.iter().take(LINES_SHOWN).map(u64::to_string).collect();
        let more = if edited.lines.len() > LINES_SHOWN { ", .." } else { "" };
        Ok(format!(
            "Edited {shown}: {} in lines {}{more}; {}, digest {}.",
            pluralize(edited.lines.len() as u64, "replacement"),
            lines.join(", "),
            pluralize(edited.content.len() as u64, "byte"),
            content_digest(&edited.content)
        ))
    }
}
