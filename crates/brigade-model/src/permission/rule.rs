//! A permission rule: `tool` or `tool(pattern)`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{PermissionSubject, glob, shell};
use crate::truncate::truncate_chars;

const LENGTH_MAX: usize = 1000;

/// A rule on a tool, or on several with `*`. With a pattern, it matches only some of their calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PermissionRule {
    tool: String,
    /// The pattern. `None` matches every call.
    pattern: Option<String>,
}

/// The reason why a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{rule}` is not a rule: {problem}; write `tool` or `tool(pattern)`, such as `run_process(cargo *)`"
)]
pub struct RuleError {
    pub rule: String,
    pub problem: &'static str,
}

impl PermissionRule {
    /// Returns whether it names this tool.
    pub fn matches_tool(&self, tool: &str) -> bool {
        glob::matches(&self.tool, tool, glob::StarReach::Anything)
    }

    /// Returns whether it matches every call of its tools.
    pub fn is_whole_tool(&self) -> bool {
        self.pattern.is_none()
    }

    /// Returns the tool as it is written.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Returns the pattern as it is written. `None` matches every call.
    pub fn pattern(&self) -> Option<&str> {
        self.pattern.as_deref()
    }

    /// Returns whether this rule certainly denies every call that the other matches. If that
    /// depends on the tool's use of its pattern, the answer is no.
    pub fn shadows(&self, other: &Self) -> bool {
        // A star of the other is a letter here, which only a star of this one can match.
        if !self.matches_tool(&other.tool) {
            return false;
        }
        match (&self.pattern, &other.pattern) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(pattern), Some(other)) => {
                let path = other.replace("**", "*/*");
                matches_command(pattern, other)
                    && glob::matches(pattern, &path, glob::StarReach::WithinDirectory)
            }
        }
    }

    /// Returns whether the rule certainly matches the call.
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
        glob::matches(pattern, text, glob::StarReach::WithinDirectory)
            && glob::matches(pattern, &normalize_path(text), glob::StarReach::WithinDirectory)
    }

    /// Returns the option without which the command would be allowed.
    pub fn refused_option(&self, subject: &PermissionSubject<'_>) -> Option<&'static str> {
        let pattern = self.pattern.as_ref()?;
        let text = subject.text?;
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

    /// Returns whether the rule may match the call. A pattern without a text to compare with
    /// matches, because a call that cannot be distinguished must not be allowed.
    pub fn denies(&self, subject: &PermissionSubject<'_>) -> bool {
        if !self.matches_tool(subject.tool) {
            return false;
        }
        let Some(pattern) = &self.pattern else { return true };
        let Some(text) = subject.text else { return true };
        if subject.is_shell {
            // A pattern of stars matches a text without a command.
            return matches_command(pattern, &shell::collapse_spaces(text))
                || shell::find_commands(text)
                    .iter()
                    .any(|command| matches_command(pattern, command))
                || shell::may_run(pattern, text);
        }
        glob::matches(pattern, text, glob::StarReach::WithinDirectory)
            || glob::matches(pattern, &normalize_path(text), glob::StarReach::WithinDirectory)
    }
}

/// Returns whether a pattern matches a command. `cargo *` matches `cargo` with and without
/// arguments, but not `cargo-other`.
fn matches_command(pattern: &str, command: &str) -> bool {
    let alone = pattern
        .strip_suffix(" *")
        .is_some_and(|alone| glob::matches(alone, command, glob::StarReach::Anything));
    alone || glob::matches(pattern, command, glob::StarReach::Anything)
}

/// Removes `.`, `..` and doubled slashes, so that `src/../secret` is not in `src`.
fn normalize_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => (),
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            // The root has no parent.
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
        let wrong = |problem| Err(RuleError { rule: truncate_chars(text, LENGTH_MAX), problem });
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
