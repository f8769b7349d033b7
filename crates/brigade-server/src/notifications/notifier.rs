//! A notifier: a receiver of notifications as the operator configured it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::spec::RequestedNotifier;

use super::notification::{NotificationKind, NotifiedTask};
use super::retry_policy::RetryPolicy;
use super::webhook::Webhook;

/// The most notifiers of one daemon.
pub const NOTIFIERS_MAX: usize = 16;
/// The longest name of a notifier.
pub const NAME_BYTES_MAX: usize = 64;
/// The time of one attempt, unless the notifier has its own.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A receiver of notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notifier {
    pub name: Arc<str>,
    pub target: NotifierTarget,
    /// The kinds of events that it gets.
    pub on: BTreeSet<NotificationKind>,
    /// The sessions whose tasks it gets events of; an empty set is all of them.
    pub sessions: BTreeSet<String>,
    pub tasks: TaskSelection,
    /// The time of one attempt.
    pub timeout: Duration,
    pub retry: RetryPolicy,
}

/// The place to which a notifier delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotifierTarget {
    /// A program with its arguments, which reads the notification from stdin.
    Command(Vec<String>),
    /// A URL that gets the notification as a POST.
    Webhook(Webhook),
}

/// The tasks that a notifier selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskSelection {
    /// Outcomes of top-level tasks. Questions to the operator and approvals of all tasks, because
    /// nobody else decides them.
    #[default]
    TopLevel,
    All,
    /// Tasks that were started with a request for the notifier, and no others.
    Requested,
}

/// The notifiers of a daemon, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifierSet(Vec<Arc<Notifier>>);

impl Notifier {
    /// Creates a notifier for all kinds of events, with the default selection, time and retries.
    pub fn new(name: impl Into<Arc<str>>, target: NotifierTarget) -> Self {
        Self {
            name: name.into(),
            target,
            on: NotificationKind::ALL.into(),
            sessions: BTreeSet::new(),
            tasks: TaskSelection::default(),
            timeout: DEFAULT_TIMEOUT,
            retry: RetryPolicy::default(),
        }
    }

    /// Returns whether the notifier gets an event of a task. A request for it selects the task in any
    /// session.
    pub(super) fn selects(
        &self,
        kind: NotificationKind,
        task: &NotifiedTask,
        requested: Option<&RequestedNotifier>,
    ) -> bool {
        if requested.is_some_and(|requested| requested.includes(&self.name)) {
            return self.on.contains(&kind);
        }
        let has_session = self.sessions.is_empty() || self.sessions.contains(&task.session);
        let has_task = match self.tasks {
            TaskSelection::All => true,
            TaskSelection::Requested => false,
            TaskSelection::TopLevel => kind != NotificationKind::Ended || task.is_top_level(),
        };
        self.on.contains(&kind) && has_session && has_task
    }
}

impl NotifierSet {
    pub fn new(notifiers: impl IntoIterator<Item = Notifier>) -> Self {
        Self(notifiers.into_iter().map(Arc::new).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Notifier>> {
        self.0.iter()
    }

    pub(super) fn find(&self, name: &str) -> Option<&Arc<Notifier>> {
        self.0.iter().find(|notifier| &*notifier.name == name)
    }
}

/// Returns whether a text can be the name of a notifier: letters, digits, `-` and `_`.
pub fn is_notifier_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(session: &str, parent: Option<&str>) -> NotifiedTask {
        NotifiedTask {
            session: session.to_owned(),
            session_id: "1".to_owned(),
            address: "agent:2".to_owned(),
            name: None,
            kind: Some("agent".to_owned()),
            description: None,
            parent: parent.map(str::to_owned),
            run: None,
            spawned_at: None,
        }
    }

    #[test]
    fn a_notifier_selects_kinds_sessions_and_tasks() {
        use NotificationKind::{Approval, Ended, Question};
        let target = NotifierTarget::Command(vec!["true".to_owned()]);
        let all = Notifier::new("desktop", target);
        let top = task("kitchen", None);
        let child = task("kitchen", Some("1"));
        assert!(all.selects(Ended, &top, None) && !all.selects(Ended, &child, None));
        assert!(all.selects(Approval, &child, None) && all.selects(Question, &child, None));
        let request = |name: &str| Some(RequestedNotifier::Named(name.into()));
        let requested = Notifier { tasks: TaskSelection::Requested, ..all.clone() };
        assert!(!requested.selects(Ended, &top, None));
        assert!(!requested.selects(Ended, &top, request("other").as_ref()));
        assert!(requested.selects(Ended, &child, request("desktop").as_ref()));
        assert!(requested.selects(Ended, &child, Some(&RequestedNotifier::All)));
        let everything = Notifier { tasks: TaskSelection::All, ..all.clone() };
        assert!(everything.selects(Ended, &child, None));
        let approvals = Notifier { on: [Approval].into(), ..all.clone() };
        assert!(approvals.selects(Approval, &top, None) && !approvals.selects(Ended, &top, None));
        let elsewhere = Notifier { sessions: ["garden".to_owned()].into(), ..all };
        assert!(!elsewhere.selects(Ended, &top, None));
        assert!(elsewhere.selects(Ended, &task("garden", None), None));
    }

    #[test]
    fn a_name_fits_into_a_key_and_a_log_line() {
        assert!(is_notifier_name("desktop-2_b"));
        for wrong in ["", "a b", "a/b", "ä", &"a".repeat(65)] {
            assert!(!is_notifier_name(wrong), "{wrong}");
        }
    }
}
