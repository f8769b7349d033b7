//! A task as requested. It is immutable, and shared by command, event and row.

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
    /// True if the task passes to the session when its parent's own work is over, instead of being
    /// stopped.
    #[serde(default)]
    pub keep: bool,
    /// The effect of its holders' deadlines on a kept task. `None` is the default of its kind of
    /// work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_deadline: Option<KeptDeadline>,
    /// The time between a graceful and a forced stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Millis>,
    /// True if the task is a part of its parent's own work, such as the program of an agent of
    /// another vendor. It runs in its parent's slot, and the limits on the number of tasks do not
    /// count it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub part_of_parent: bool,
    /// True if a git worktree of its own was requested for the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worktree: bool,
    /// The notifiers that were requested for the task, beside those that select it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<RequestedNotifier>,
    /// A value that only this process can hold, such as a closure. It is never stored.
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
            part_of_parent: false,
            worktree: false,
            notify: None,
            attachment: None,
        }
    }
}

impl TaskSpec {
    /// Returns whether the task works in a git worktree of its own: by the request or by the
    /// definition of its agent.
    pub fn has_worktree(&self) -> bool {
        self.worktree || self.work.has_worktree()
    }

    /// Returns the requested limits combined with those of the work.
    pub fn all_limits(&self) -> Option<Box<Limits>> {
        match (&self.limits, self.work.limits()) {
            (Some(asked), Some(own)) => Some(Box::new(asked.intersect(own))),
            (Some(limits), None) => Some(limits.clone()),
            (None, own) => own.copied().map(Box::new),
        }
    }

    /// Returns the tasks to which its holders' deadlines apply after it has passed to the session.
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

/// The tasks that a holder's deadline still ends after a kept task has passed to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineScope {
    /// The task, and with it everything that it owns.
    Task,
    /// The agents and jobs that the task starts, but not the task itself: a server may live on.
    Descendants,
    /// No task, because the spawner requested that.
    Nobody,
}

impl TaskSpec {
    /// Returns the names of the fields that differ, without their values, such as "command" or
    /// "name".
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut names = self.work.differences(&other.work);
        let fields = [
            ("name", self.name == other.name),
            ("limits", self.limits == other.limits),
            ("keep", self.keep == other.keep && self.kept_deadline == other.kept_deadline),
            ("grace", self.grace == other.grace),
            ("part of its parent", self.part_of_parent == other.part_of_parent),
            ("worktree", self.worktree == other.worktree),
            ("notify", self.notify == other.notify),
        ];
        let differing = fields.into_iter().filter(|(_, same)| !same);
        names.extend(differing.map(|(name, _)| name.to_owned()));
        names
    }
}

impl PartialEq for TaskSpec {
    /// Compares two requests under one key: all requested values, without the local attachment.
    fn eq(&self, other: &Self) -> bool {
        self.work == other.work
            && self.name == other.name
            && self.key == other.key
            && self.limits == other.limits
            && self.keep == other.keep
            && self.kept_deadline == other.kept_deadline
            && self.grace == other.grace
            && self.part_of_parent == other.part_of_parent
            && self.worktree == other.worktree
            && self.notify == other.notify
    }
}

impl Eq for TaskSpec {}

/// The notifiers that were requested for one task. It names what the operator configured, and never a
/// command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestedNotifier {
    All,
    Named(Arc<str>),
}

impl RequestedNotifier {
    /// Returns whether a notifier of this name was requested.
    pub fn includes(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(requested) => **requested == *name,
        }
    }
}

/// A value that travels with a spec through the model. The model does not read it.
#[derive(Clone)]
pub struct LocalAttachment(pub Arc<dyn Any + Send + Sync>);

impl fmt::Debug for LocalAttachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attachment")
    }
}
