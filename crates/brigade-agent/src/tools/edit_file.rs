//! Changes parts of a file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::FileTool;
use super::edits::{Edit, apply};
use super::replace::{Before, replace};
use super::watch::Watch;
use super::words::{binary_kind, count, digest, quoted, whole};
use super::workspace::Workspace;
use super::write_file::{CONTENT_MAX, expected, must_be_writable};
use crate::tool::{Effect, Hints, ToolError};

const EDITS_MAX: usize = 100;
/// Lines that are named in the answer.
const LINES_SHOWN: usize = 20;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFile {
    /// The file, relative to your directory.
    path: String,
    /// What to replace: applied in this order, each to what the ones before it left; all or none.
    edits: Vec<Edit>,
    /// Refuse if the file has another digest than this, which read_file told.
    #[serde(default)]
    expect: Option<String>,
}

impl FileTool for EditFile {
    const NAME: &'static str = "edit_file";
    const DESCRIPTION: &'static str = "Change parts of a text file of your directory: each edit replaces a \
        text that is exactly there, once, unless all: true. Either all edits of a call are made or none, \
        in one step; line ends, byte order mark and mode stay. Read the file first. If somebody else \
        changes it meanwhile nothing is written, and you are told. Not for new files or for replacing \
        everything: write_file does that.";
    const HINTS: Hints = Hints { destructive: true, alone: true, ..Hints::of(Effect::Once) };

    fn path(&self) -> &str {
        &self.path
    }

    fn run(self, workspace: &Workspace, watch: &Watch) -> Result<String, ToolError> {
        if !(1..=EDITS_MAX).contains(&self.edits.len()) {
            let problem = format!("the argument `edits`: give 1 to {EDITS_MAX} edits");
            return Err(ToolError::new(problem));
        }
        let located = workspace.locate(Self::NAME, &self.path)?;
        let (root, name) = (&located.root, &located.name);
        let shown = quoted(name.as_str());
        let (old, stat) = whole(root, name, CONTENT_MAX)?;
        must_be_writable(&located, &stat)?;
        if let Some(kind) = binary_kind(&old) {
            return Err(ToolError::new(format!("{shown} is a binary file: {kind}")));
        }
        expected(self.expect.as_deref(), &old, &shown)?;
        let edited = apply(&old, &self.edits, CONTENT_MAX)
            .map_err(|problem| ToolError::new(format!("{shown} was not changed: {problem}")))?;
        if edited.content == old {
            let problem = format!("{shown} was not changed: the edits undo each other");
            return Err(ToolError::new(problem));
        }
        replace((root, name), &edited.content, Before::Content(&old, &stat), watch)?;
        let lines: Vec<String> =
            edited.lines.iter().take(LINES_SHOWN).map(u64::to_string).collect();
        let more = if edited.lines.len() > LINES_SHOWN { ", .." } else { "" };
        Ok(format!(
            "Edited {shown}: {} in lines {}{more}; {}, digest {}.",
            count(edited.lines.len() as u64, "replacement"),
            lines.join(", "),
            count(edited.content.len() as u64, "byte"),
            digest(&edited.content)
        ))
    }
}
