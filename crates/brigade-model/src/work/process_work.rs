//! Work for an OS process: its command line, environment, input and sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::Millis;
use crate::refusal::Refusal;
use crate::sandbox::Sandbox;
use crate::truncate::truncate_chars;
use crate::work::ReadinessCheck;

/// An OS process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessWork {
    pub command: CommandLine,
    /// The shell that reads the command line, as resolved when the task was spawned, so that a
    /// later start uses the same one. `None` for a program, and for tasks stored by older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<Arc<str>>,
    /// The working directory as an absolute path. If `None`, that of the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Arc<str>>,
    /// Variables in addition to those that every process gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<Arc<str>, EnvValue>,
    #[serde(default)]
    pub stdin: StdinSource,
    /// The maximum number of bytes stored of each output stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_cap: Option<u64>,
    /// The sandbox and terminal, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Box<Sandbox>>,
    /// The time for which output waits for a first reader that must not miss any of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_reader_timeout: Option<Millis>,
    /// The condition under which it counts as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadinessCheck>,
}

/// Two values are equal when the same was requested, regardless of the first reader. The machine
/// that starts the task chooses the shell, so a key is the same request where another shell is
/// configured.
impl PartialEq for ProcessWork {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            command,
            shell: _,
            cwd,
            env,
            stdin,
            output_cap,
            sandbox,
            first_reader_timeout: _,
            ready,
        } = self;
        *command == other.command
            && *cwd == other.cwd
            && *env == other.env
            && *stdin == other.stdin
            && *output_cap == other.output_cap
            && *sandbox == other.sandbox
            && *ready == other.ready
    }
}

impl Eq for ProcessWork {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandLine {
    /// A text for the shell.
    Shell(Arc<str>),
    /// A program and its arguments, without a shell.
    Program(Vec<Arc<str>>),
}

/// The value of an environment variable, or its source when the process starts. A value from a
/// source is never stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnvValue {
    Text(Arc<str>),
    /// The value of this variable in the runtime's environment.
    FromEnv(Arc<str>),
    /// The content of this file, without its trailing newline.
    FromFile(Arc<str>),
}

impl From<&str> for EnvValue {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for EnvValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

/// The source of a process's standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinSource {
    /// No input: the process reads end of file at once.
    #[default]
    Null,
    /// The messages that are sent to the task, one per line.
    Messages,
}

impl ProcessWork {
    /// The maximum length of a command line: the kernel's limit for one argument.
    pub const COMMAND_BYTES_MAX: usize = 128 * 1024 - 1;

    pub fn new(command: CommandLine) -> Self {
        Self {
            command,
            shell: None,
            cwd: None,
            env: BTreeMap::new(),
            stdin: StdinSource::Null,
            output_cap: None,
            sandbox: None,
            first_reader_timeout: None,
            ready: None,
        }
    }

    /// Returns whether messages reach the process. A terminal always accepts input.
    pub fn reads_messages(&self) -> bool {
        let has_terminal = self.sandbox.as_ref().is_some_and(|it| it.terminal.is_some());
        has_terminal || self.stdin == StdinSource::Messages
    }

    pub(super) fn compare_fields(&self, other: &Self) -> Vec<(String, bool)> {
        let names: BTreeSet<&str> =
            self.env.keys().chain(other.env.keys()).map(|name| &**name).collect();
        let changed = names.into_iter().filter(|name| self.env.get(*name) != other.env.get(*name));
        let env = format!("environment ({})", changed.collect::<Vec<_>>().join(", "));
        let same = |name: &str, same| (name.to_owned(), same);
        vec![
            same("command", self.command == other.command),
            same("working directory", self.cwd == other.cwd),
            same(&env, self.env == other.env),
            same("input", self.stdin == other.stdin),
            same("output cap", self.output_cap == other.output_cap),
            same("sandbox or terminal", self.sandbox == other.sandbox),
            same("readiness check", self.ready == other.ready),
        ]
    }

    pub fn check(&self) -> Result<(), Refusal> {
        match &self.command {
            CommandLine::Shell(text) => {
                if text.trim().is_empty() {
                    return Err(Refusal::invalid("the command line is blank"));
                }
                check_text("the command line", text)?;
            }
            CommandLine::Program(words) => {
                if words.first().is_none_or(|program| program.is_empty()) {
                    return Err(Refusal::invalid("the command line has no program to execute"));
                }
                words.iter().try_for_each(|word| check_text("an argument", word))?;
            }
        }
        if let Some(cwd) = &self.cwd {
            check_text("the working directory", cwd)?;
            if !cwd.starts_with('/') {
                let shown = truncate_chars(cwd, 200);
                return Err(Refusal::invalid(format!(
                    "the working directory {shown:?} is not an absolute path"
                )));
            }
        }
        if let Some(sandbox) = &self.sandbox {
            sandbox.check()?;
        }
        if let Some(ready) = &self.ready {
            ready.check()?;
            if ready.needs_network() && self.sandbox.as_ref().is_some_and(|it| it.denies_tcp()) {
                return Err(Refusal::invalid(
                    "a sandbox without network has no port to be ready on; use a pattern of its \
                     output",
                ));
            }
        }
        self.env.iter().try_for_each(|(name, value)| check_variable(name, value))
    }
}

fn check_variable(name: &str, value: &EnvValue) -> Result<(), Refusal> {
    if name.is_empty() || name.contains(['=', '\0']) {
        let shown = truncate_chars(name, 200);
        return Err(Refusal::invalid(format!("{shown:?} cannot be an environment variable")));
    }
    if name.starts_with(RESERVED_ENV_PREFIX) {
        return Err(Refusal::invalid(format!(
            "variables named {RESERVED_ENV_PREFIX}.. are Brigade's own"
        )));
    }
    let (EnvValue::Text(text) | EnvValue::FromEnv(text) | EnvValue::FromFile(text)) = value;
    check_text("an environment variable", text)
}

/// The prefix of the variables that identify a task to its process.
pub const RESERVED_ENV_PREFIX: &str = "BRIGADE_";

fn check_text(subject: &str, text: &str) -> Result<(), Refusal> {
    if text.contains('\0') {
        return Err(Refusal::invalid(format!("{subject} contains a NUL byte")));
    }
    if text.len() > ProcessWork::COMMAND_BYTES_MAX {
        let max = ProcessWork::COMMAND_BYTES_MAX;
        return Err(Refusal::invalid(format!("{subject} is longer than {max} bytes")));
    }
    Ok(())
}
