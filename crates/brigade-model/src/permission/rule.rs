//! One rule: `tool` or `tool(pattern)`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{PermissionSubject, glob, shell};

const LENGTH_MAX: usize = 1000;

/// Names a tool, or several with `*`, and where there is a pattern only some of its calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PermissionRule {
    tool: String,
    /// None is every call.
    pattern: Option<String>,
}

/// Why a text is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{rule}` is no rule: {problem}; write `tool` or `tool(pattern)`, such as `run_process(cargo *)`"
)]
pub struct RuleError {
    pub rule: String,
    pub problem: &'static str,
}

impl PermissionRule {
    /// Whether it speaks of this tool.
    pub fn matches_tool(&self, tool: &str) -> bool {
        glob::matches(&self.tool, tool, glob::StarReach::Anything)
    }

    /// Whether it speaks of every call of its tools.
    pub fn is_whole_tool(&self) -> bool {
        self.pattern.is_none()
    }

    /// The tool that it names, as it is written.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The pattern, as it is written. None is every call.
    pub fn pattern(&self) -> Option<&str> {
        self.pattern.as_deref()
    }

    /// Whether every call that the other speaks of is surely one that this one denies. Where it
    /// depends on what the tool makes of its pattern, it is not sure.
    pub fn shadows(&self, other: &Self) -> bool {
        // A star of the other is a letter here, which only a star of this one can be.
        if !self.matches_tool(&other.tool) {
            return false;
        }
        match (&self.pattern, &other.pattern) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(pattern), Some(other)) => {
                let path = other.replace("**", "*/*");
                matches_command(pattern, other)
                    && glob::matches(pattern, &path, glob::StarReach::WithinFolder)
            }
        }
    }

    /// Whether the call is surely one that the rule speaks of.
    pub fn allows(&self, subject: &PermissionSubject<'_>) -> bool {
        if !self.matches_tool(subject.tool) {
            return false;
        }
        let Some(pattern) = &self.pattern else { return true };
        let Some(text) = subject.text else { return false };
        if subject.is_shell {
            return self.allows_but_for_options(text)
                && shell::overriding_option(pattern, text).is_none();
        }
        glob::matches(pattern, text, glob::StarReach::WithinFolder)
            && glob::matches(pattern, &normalize_path(text), glob::StarReach::WithinFolder)
    }

    /// The option of a command that would be allowed without it.
    pub fn refused_option(&self, subject: &PermissionSubject<'_>) -> Option<&'static str> {
        let (pattern, text) = (self.pattern.as_ref()?, subject.text?);
        if !subject.is_shell
            || !self.matches_tool(subject.tool)
            || !self.allows_but_for_options(text)
        {
            return None;
        }
        shell::overriding_option(pattern, text)
    }

    fn allows_but_for_options(&self, text: &str) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        shell::find_compound_syntax(text).is_none()
            && shell::strip_variables(pattern, &shell::collapse_spaces(text))
                .is_some_and(|(pattern, command)| matches_command(pattern, command))
    }

    /// Whether the call may be one that the rule speaks of. A pattern that has nothing to be
    /// compared with denies: what cannot be told apart is not let through.
    pub fn denies(&self, subject: &PermissionSubject<'_>) -> bool {
        if !self.matches_tool(subject.tool) {
            return false;
        }
        let Some(pattern) = &self.pattern else { return true };
        let Some(text) = subject.text else { return true };
        if subject.is_shell {
            // A text without a command is one that a pattern of stars speaks of.
            return matches_command(pattern, &shell::collapse_spaces(text))
                || shell::find_commands(text)
                    .iter()
                    .any(|command| matches_command(pattern, command))
                || shell::may_run(pattern, text);
        }
        glob::matches(pattern, text, glob::StarReach::WithinFolder)
            || glob::matches(pattern, &normalize_path(text), glob::StarReach::WithinFolder)
    }
}

/// `cargo *` is `cargo` with and without arguments, but not `cargo-other`.
fn matches_command(pattern: &str, command: &str) -> bool {
    let alone = pattern
        .strip_suffix(" *")
        .is_some_and(|alone| glob::matches(alone, command, glob::StarReach::Anything));
    alone || glob::matches(pattern, command, glob::StarReach::Anything)
}

/// A path without `.`, `..` and doubled slashes, so that `src/../secret` is not below `src`.
fn normalize_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => (),
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            // Nothing is above the root.
            ".." if path.starts_with('/') => (),
            part => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

impl FromStr for PermissionRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let wrong =
            |problem| Err(RuleError { rule: text.chars().take(LENGTH_MAX).collect(), problem });
        if text.len() > LENGTH_MAX {
            return wrong("it is too long");
        }
        let (tool, pattern) = match text.trim().split_once('(') {
            Some((tool, rest)) => match rest.strip_suffix(')') {
                Some(pattern) => (tool, Some(pattern.trim())),
                None => return wrong("its parenthesis is not closed"),
            },
            None => (text.trim(), None),
        };
        if tool.is_empty() {
            return wrong("it names no tool");
        }
        if !tool.chars().all(|c| c.is_ascii_alphanumeric() || "_-.:*".contains(c)) {
            return wrong("a tool's name has letters, digits, `_`, `-`, `.`, `:`, and `*` for any");
        }
        match pattern {
            Some("") => wrong("its pattern is empty"),
            Some("*" | "**") | None => Ok(Self { tool: tool.to_owned(), pattern: None }),
            Some(pattern) => Ok(Self { tool: tool.to_owned(), pattern: Some(pattern.to_owned()) }),
        }
    }
}

impl TryFrom<String> for PermissionRule {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, RuleError> {
        text.parse()
    }
}

impl From<PermissionRule> for String {
    fn from(rule: PermissionRule) -> Self {
        rule.to_string()
    }
}

impl fmt::Display for PermissionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            Some(pattern) => write!(f, "{}({pattern})", self.tool),
            None => f.write_str(&self.tool),
        }
    }
}
