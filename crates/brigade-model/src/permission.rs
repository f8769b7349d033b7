//! One rule on the calls of tools: `tool` or `tool(pattern)`, and what it is held against.
//!
//! Rules are here, and not with the agents that obey them, because a tree keeps what its operator
//! allowed for good: whether that covers a call is decided with everything else.

use std::fmt;

pub use rule::{PermissionRule, RuleError};

mod glob;
mod rule;
mod shell;

/// A call, as rules see it. Each tool says which of its arguments a pattern is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermissionSubject<'a> {
    pub tool: &'a str,
    /// The command, path or name; for paths, relative to the working directory.
    pub text: Option<&'a str>,
    /// Whether a shell reads the text.
    pub is_shell: bool,
}

impl PermissionSubject<'_> {
    /// What makes it more than one simple command, where a shell reads it.
    pub fn compound_syntax(&self) -> Option<&'static str> {
        self.text.filter(|_| self.is_shell).and_then(shell::find_compound_syntax)
    }
}

impl fmt::Display for PermissionSubject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 200;
        let Some(text) = self.text else { return write!(f, "`{}`", self.tool) };
        let cut: String = text.chars().take(SHOWN).collect();
        let more = if cut.len() < text.len() { "…" } else { "" };
        write!(f, "`{}({cut}{more})`", self.tool)
    }
}
