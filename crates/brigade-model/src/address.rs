//! Addresses as people and models type them: `agent:3`, `3`, `Test Runner`, `session/job:5#1`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{RunNo, TaskNo};
use crate::name::{SESSION_NAME_MAX, SessionName, TaskName};
use crate::refusal::Refusal;
use crate::truncate::truncate_chars;
use crate::work::TaskKind;

/// The address of a task, optionally with its session and one of its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskAddress {
    pub session: Option<SessionName>,
    pub task: TaskRef,
}

/// A reference to a task within a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRef {
    pub selector: TaskSelector,
    pub run: Option<RunNo>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskSelector {
    Number(TaskNo),
    /// A number with its kind, which must match.
    KindAndNumber(TaskKind, TaskNo),
    /// A name: of the alive task that has it, otherwise of the newest ended one.
    Name(TaskName),
}

impl From<TaskNo> for TaskRef {
    fn from(no: TaskNo) -> Self {
        Self { selector: TaskSelector::Number(no), run: None }
    }
}

impl TryFrom<&str> for TaskRef {
    type Error = Refusal;

    fn try_from(text: &str) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl FromStr for TaskAddress {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        if text.len() > SESSION_NAME_MAX + 128 {
            return Err(refuse_address(text, "is too long"));
        }
        // A session name may be a path, so the task is the part after the last slash.
        match text.rsplit_once('/') {
            Some((session, task)) => {
                Ok(Self { session: Some(session.parse()?), task: task.parse()? })
            }
            None => Ok(Self { session: None, task: text.parse()? }),
        }
    }
}

impl FromStr for TaskRef {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let (selector, run) = match text.split_once('#') {
            Some((selector, run)) => (selector, Some(RunNo(parse_task_no(run, text)?.get()))),
            None => (text, None),
        };
        let selector = match selector.split_once(':') {
            Some((kind, no)) => {
                TaskSelector::KindAndNumber(TaskKind::parse(kind)?, parse_task_no(no, text)?)
            }
            None if selector.starts_with(|c: char| c.is_ascii_digit()) => {
                TaskSelector::Number(parse_task_no(selector, text)?)
            }
            None => TaskSelector::Name(selector.parse()?),
        };
        Ok(Self { selector, run })
    }
}

fn parse_task_no(digits: &str, whole: &str) -> Result<TaskNo, Refusal> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let value = if plain { digits.parse().ok() } else { None };
    value
        .and_then(TaskNo::new)
        .ok_or_else(|| refuse_address(whole, "has no number from 1 to 4294967295"))
}

fn refuse_address(text: &str, problem: &str) -> Refusal {
    Refusal::invalid(format!(
        "the address {:?} {problem}; write agent:3, 3, a name, session/agent:3 or agent:3#1",
        truncate_chars(text, 64)
    ))
}

impl fmt::Display for TaskRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.selector {
            TaskSelector::Number(no) => write!(f, "{no}")?,
            TaskSelector::KindAndNumber(kind, no) => write!(f, "{kind}:{no}")?,
            TaskSelector::Name(name) => write!(f, "{name}")?,
        }
        match self.run {
            Some(run) => write!(f, "#{run}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for TaskAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.session {
            Some(session) => write!(f, "{session}/{}", self.task),
            None => self.task.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn parses(text: &str) {
        assert_eq!(text.parse::<TaskAddress>().unwrap().to_string(), text);
    }

    #[track_caller]
    fn is_refused(text: &str, part: &str) {
        let refusal = text.parse::<TaskAddress>().unwrap_err();
        assert!(refusal.to_string().contains(part), "{refusal}");
        assert!(refusal.to_string().len() < 400);
    }

    #[test]
    fn addresses_are_parsed_and_printed() {
        for text in ["agent:3", "process:4", "job:5", "7", "Test Runner", "agent:3#1", "cook:12"] {
            parses(text);
        }
        parses("/home/me/project/agent:3");
        parses("demo/Test Runner#2");
    }

    #[test]
    fn invalid_addresses_are_refused() {
        is_refused("", "is empty");
        is_refused("agent:", "no number");
        is_refused("agent:0", "no number");
        is_refused("agent:-1", "no number");
        is_refused("agent:99999999999", "no number");
        is_refused("3x", "no number");
        is_refused("Agent:3", "lower-case");
        is_refused("agent:3#", "no number");
        is_refused("/agent:3", "session name");
        is_refused(&"x".repeat(5_000), "too long");
        is_refused("all", "reserved");
    }
}
