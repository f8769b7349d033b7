//! Permission rules on tool calls, written `tool` or `tool(pattern)`, and the subject that they
//! match.
//!
//! Rules are in the model because a session stores grants: `decide` checks whether a grant covers a
//! call.

use std::fmt;

pub use rule::{PermissionRule, RuleError};

use crate::truncate::truncate_chars;

mod glob;
mod rule;
mod shell;

/// A call as rules see it. Each tool says which of its arguments a pattern is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermissionSubject<'a> {
    pub tool: &'a str,
    /// The command line, path or name. A path is relative to the working directory.
    pub text: Option<&'a str>,
    /// True if a shell reads the text.
    pub is_shell: bool,
}

impl PermissionSubject<'_> {
    /// Returns the syntax that makes a shell text more than one simple command, if any.
    pub fn compound_syntax(&self) -> Option<&'static str> {
        self.text.filter(|_| self.is_shell).and_then(shell::find_compound_syntax)
    }
}

impl fmt::Display for PermissionSubject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 200;
        let Some(text) = self.text else { return write!(f, "`{}`", self.tool) };
        write!(f, "`{}({})`", self.tool, truncate_chars(text, SHOWN))
    }
}
