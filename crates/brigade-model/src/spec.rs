//! What was asked for when a task was spawned. Immutable, shared by command, event and task.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::Millis;
use crate::limits::Limits;
use crate::name::{IdempotencyKey, TaskName};
use crate::work::{KeptDeadline, Work};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskSpec {
    pub work: Work,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<TaskName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<IdempotencyKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Box<Limits>>,
    /// The task passes to the session when its parent's own work is over, instead of being stopped.
    #[serde(default)]
    pub keep: bool,
    /// Whether the deadlines above a kept task hold on for it; `None` is what its kind of work has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_deadline: Option<KeptDeadline>,
    /// How long a stop stays kind before it becomes firm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Millis>,
    /// What only this process can hold, such as a closure. Never stored.
    #[serde(skip)]
    pub attachment: Option<LocalAttachment>,
}

impl TaskSpec {
    pub fn new(work: Work) -> Self {
        Self {
            work,
            name: None,
            key: None,
            limits: None,
            keep: false,
            kept_deadline: None,
            grace: None,
            attachment: None,
        }
    }
}

impl TaskSpec {
    /// What was asked for, and what comes with the work.
    pub fn all_limits(&self) -> Option<Box<Limits>> {
        match (&self.limits, self.work.limits()) {
            (Some(asked), Some(own)) => Some(Box::new(asked.intersect(own))),
            (Some(limits), None) => Some(limits.clone()),
            (None, own) => own.copied().map(Box::new),
        }
    }

    /// Returns the effect of the deadlines above the task after it has passed to the session.
    pub fn deadline_scope(&self) -> DeadlineScope {
        match (self.kept_deadline, self.work.kept_deadline()) {
            (Some(KeptDeadline::Inherited), _) | (None, KeptDeadline::Inherited) => {
                DeadlineScope::Task
            }
            (None, KeptDeadline::Dropped) => DeadlineScope::Descendants,
            (Some(KeptDeadline::Dropped), _) => DeadlineScope::Nobody,
        }
    }
}

/// The tasks that a deadline above a kept task still ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineScope {
    /// The task, and with it everything that it owns.
    Task,
    /// The agents and jobs that the task starts, but not the task: a server may live on.
    Descendants,
    /// Nothing: the spawner said so.
    Nobody,
}

impl TaskSpec {
    /// Names what differs between two requests, without the values: "command", "name".
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut names = self.work.differences(&other.work);
        let fields = [
            ("name", self.name == other.name),
            ("limits", self.limits == other.limits),
            ("keep", self.keep == other.keep && self.kept_deadline == other.kept_deadline),
            ("grace", self.grace == other.grace),
        ];
        let differing = fields.into_iter().filter(|(_, same)| !same);
        names.extend(differing.map(|(name, _)| name.to_owned()));
        names
    }
}

impl PartialEq for TaskSpec {
    /// What makes two requests under one key the same request: all that was asked, as it was
    /// asked, without what only this process holds.
    fn eq(&self, other: &Self) -> bool {
        self.work == other.work
            && self.name == other.name
            && self.key == other.key
            && self.limits == other.limits
            && self.keep == other.keep
            && self.kept_deadline == other.kept_deadline
            && self.grace == other.grace
    }
}

impl Eq for TaskSpec {}

/// A value that travels with a spec through the model, which does not look at it.
#[derive(Clone)]
pub struct LocalAttachment(pub Arc<dyn Any + Send + Sync>);

impl fmt::Debug for LocalAttachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attachment")
    }
}
