//! An operating system process as work: its command line, environment, input and sandbox.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::Millis;
use crate::refusal::Refusal;
use crate::sandbox::Sandbox;

/// A command of the operating system.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessWork {
    pub command: CommandLine,
    /// The shell that reads the command line, as it was chosen when the task was started, so that a later
    /// start does not choose another. None for a program, and for what was stored before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<Arc<str>>,
    /// An absolute path; where the runtime is, when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Arc<str>>,
    /// Beside what every command is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(Arc<str>, EnvValue)>,
    #[serde(default)]
    pub stdin: StdinSource,
    /// The most that is kept of each output stream, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_cap: Option<u64>,
    /// What it is started in and kept to, where that is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Box<Sandbox>>,
    /// How long its output waits for a first reader who must not miss any of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_reader_timeout: Option<Millis>,
}

/// Two are equal when the same was asked for, whoever reads its output first. The shell is chosen by the
/// machine that starts the task: a key stands for the same request where another one is configured.
impl PartialEq for ProcessWork {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            command,
            shell: _,
            cwd,
            env,
            stdin,
            output_cap,
            sandbox: enclosure,
            first_reader_timeout: _,
        } = self;
        *command == other.command
            && *cwd == other.cwd
            && *env == other.env
            && *stdin == other.stdin
            && *output_cap == other.output_cap
            && *enclosure == other.sandbox
    }
}

impl Eq for ProcessWork {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandLine {
    /// Text for the shell.
    Shell(Arc<str>),
    /// A program and its arguments, as they are.
    Program(Vec<Arc<str>>),
}

/// The value of an environment variable, or where it is to be had when the command starts. What a
/// reference stands for is never stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnvValue {
    Text(Arc<str>),
    /// The value of this variable of the runtime's own environment.
    FromEnv(Arc<str>),
    /// The content of this file, without the line's end.
    FromFile(Arc<str>),
}

/// What a command reads from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinSource {
    /// Nothing: the end of the file at once.
    #[default]
    Null,
    /// The messages that are sent to the task, a line each.
    Messages,
}

impl ProcessWork {
    /// The longest command, as the kernel takes it in one piece.
    pub const COMMAND_BYTES_MAX: usize = 128 * 1024 - 1;

    pub fn new(command: CommandLine) -> Self {
        Self {
            command,
            shell: None,
            cwd: None,
            env: Vec::new(),
            stdin: StdinSource::Null,
            output_cap: None,
            sandbox: None,
            first_reader_timeout: None,
        }
    }

    /// Whether messages to it arrive: a terminal can always be typed on.
    pub fn reads_messages(&self) -> bool {
        let has_terminal = self.sandbox.as_ref().is_some_and(|it| it.terminal.is_some());
        has_terminal || self.stdin == StdinSource::Messages
    }

    pub(super) fn compare_fields(&self, other: &Self) -> Vec<(String, bool)> {
        let variables = self
            .env
            .iter()
            .chain(&other.env)
            .filter(|variable| !self.env.contains(variable) || !other.env.contains(variable));
        let mut names: Vec<&str> = variables.map(|(name, _)| &**name).collect();
        names.sort_unstable();
        names.dedup();
        // In another order they are another request too.
        let env = match names.as_slice() {
            [] => "order of variables".to_owned(),
            names => format!("environment ({})", names.join(", ")),
        };
        let same = |name: &str, same| (name.to_owned(), same);
        vec![
            same("command", self.command == other.command),
            same("working directory", self.cwd == other.cwd),
            same(&env, self.env == other.env),
            same("input", self.stdin == other.stdin),
            same("output cap", self.output_cap == other.output_cap),
            same("confinement or terminal", self.sandbox == other.sandbox),
        ]
    }

    pub fn check(&self) -> Result<(), Refusal> {
        match &self.command {
            CommandLine::Shell(text) => {
                if text.trim().is_empty() {
                    return Err(Refusal::invalid("the command is blank"));
                }
                check_text("the command", text)?;
            }
            CommandLine::Program(words) => {
                if words.first().is_none_or(|program| program.is_empty()) {
                    return Err(Refusal::invalid("the command has no program to execute"));
                }
                words.iter().try_for_each(|word| check_text("an argument", word))?;
            }
        }
        if let Some(cwd) = &self.cwd {
            check_text("the working directory", cwd)?;
            if !cwd.starts_with('/') {
                let clipped = crate::name::truncate(cwd, 200);
                return Err(Refusal::invalid(format!(
                    "the working directory {clipped:?} is not an absolute path"
                )));
            }
        }
        if let Some(enclosure) = &self.sandbox {
            enclosure.check()?;
        }
        self.env.iter().try_for_each(|(name, value)| check_variable(name, value))
    }
}

fn check_variable(name: &str, value: &EnvValue) -> Result<(), Refusal> {
    if name.is_empty() || name.contains(['=', '\0']) {
        let clipped = crate::name::truncate(name, 200);
        return Err(Refusal::invalid(format!("{clipped:?} cannot be an environment variable")));
    }
    if name.starts_with(RESERVED_ENV_PREFIX) {
        return Err(Refusal::invalid(format!(
            "variables named {RESERVED_ENV_PREFIX}.. are Brigade's own"
        )));
    }
    let (EnvValue::Text(text) | EnvValue::FromEnv(text) | EnvValue::FromFile(text)) = value;
    check_text("an environment variable", text)
}

/// How the variables begin by which a command learns who it is.
pub const RESERVED_ENV_PREFIX: &str = "BRIGADE_";

fn check_text(what: &str, text: &str) -> Result<(), Refusal> {
    if text.contains('\0') {
        return Err(Refusal::invalid(format!("{what} contains a NUL byte")));
    }
    if text.len() > ProcessWork::COMMAND_BYTES_MAX {
        let most = ProcessWork::COMMAND_BYTES_MAX;
        return Err(Refusal::invalid(format!("{what} is longer than {most} bytes")));
    }
    Ok(())
}
