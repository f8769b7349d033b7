//! Addresses as people and models type them: `agent:3`, `3`, `Test Runner`, `session/job:5#1`.

use std::fmt;
use std::str::FromStr;

use crate::ids::{RunNo, TaskNo};
use crate::name::{SESSION_NAME_MAX, SessionName, TaskName, truncate};
use crate::refusal::Refusal;
use crate::work::TaskKind;

/// A task, perhaps of another session, perhaps an earlier run of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskAddress {
    pub session: Option<SessionName>,
    pub task: TaskRef,
}

/// A task within a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRef {
    pub selector: TaskSelector,
    pub run: Option<RunNo>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskSelector {
    Number(TaskNo),
    /// A number with its kind, which must be right.
    KindAndNumber(TaskKind, TaskNo),
    /// The living bearer of a name, else the newest ended one.
    Name(TaskName),
}

impl From<TaskNo> for TaskRef {
    fn from(no: TaskNo) -> Self {
        Self { selector: TaskSelector::Number(no), run: None }
    }
}

impl FromStr for TaskAddress {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        if text.len() > SESSION_NAME_MAX + 128 {
            return Err(refuse_address(text, "is too long"));
        }
        // A session may be a path, so the task is what follows the last slash.
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
        let (who, run) = match text.split_once('#') {
            Some((who, run)) => (who, Some(RunNo(parse_task_no(run, text)?.get()))),
            None => (text, None),
        };
        let who = match who.split_once(':') {
            Some((kind, no)) => {
                TaskSelector::KindAndNumber(TaskKind::parse(kind)?, parse_task_no(no, text)?)
            }
            None if who.starts_with(|c: char| c.is_ascii_digit()) => {
                TaskSelector::Number(parse_task_no(who, text)?)
            }
            None => TaskSelector::Name(who.parse()?),
        };
        Ok(Self { selector: who, run })
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
        truncate(text, 64)
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
    fn reads(text: &str) {
        assert_eq!(text.parse::<TaskAddress>().unwrap().to_string(), text);
    }

    #[track_caller]
    fn refused(text: &str, part: &str) {
        let refusal = text.parse::<TaskAddress>().unwrap_err();
        assert!(refusal.to_string().contains(part), "{refusal}");
        assert!(refusal.to_string().len() < 400);
    }

    #[test]
    fn what_people_type() {
        for text in ["agent:3", "process:4", "job:5", "7", "Test Runner", "agent:3#1", "cook:12"] {
            reads(text);
        }
        reads("/home/me/project/agent:3");
        reads("demo/Test Runner#2");
    }

    #[test]
    fn what_is_refused() {
        refused("", "is empty");
        refused("agent:", "no number");
        refused("agent:0", "no number");
        refused("agent:-1", "no number");
        refused("agent:99999999999", "no number");
        refused("3x", "no number");
        refused("Agent:3", "lower-case");
        refused("agent:3#", "no number");
        refused("/agent:3", "session name");
        refused(&"x".repeat(5_000), "too long");
        refused("all", "reserved");
    }
}
