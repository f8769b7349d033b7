//! The settings of a node.

use std::time::Duration;

use brigade_model::refusal::Refusal;
use brigade_model::truncate::truncate_chars;

/// The time for which a renewal protects a node's sessions, by default.
const DEFAULT_LEASE: Duration = Duration::from_secs(10);
/// The time for which processes wait for their host, by default.
pub(crate) const DEFAULT_HOST_GRACE: Duration = Duration::from_secs(600);
const LEASE_MIN: Duration = Duration::from_millis(500);
/// The most characters of a name.
const NAME_MAX: usize = 64;
/// The most characters of a label. Those of every node contain its name or its host.
const LABEL_MAX: usize = 160;
/// The most labels that a session requires.
const REQUIRED_LABELS_MAX: usize = 16;

/// The settings of a runtime that shares its store with others, as one node of a fleet.
///
/// ```
/// use brigade_runtime::NodeOptions;
///
/// let options = NodeOptions::new("kitchen-1").label("gpu").capacity(1_000);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The name; `None` for one that follows from the host.
    pub(crate) name: Option<String>,
    pub(crate) labels: Vec<String>,
    pub(crate) capacity: Option<u64>,
    pub(crate) lease: Duration,
    pub(crate) host_grace: Duration,
}

impl Default for NodeOptions {
    /// Returns the settings of a node whose name follows from its host, so that it is the same after a
    /// restart.
    fn default() -> Self {
        Self {
            name: None,
            labels: Vec::new(),
            capacity: None,
            lease: DEFAULT_LEASE,
            host_grace: DEFAULT_HOST_GRACE,
        }
    }
}

impl NodeOptions {
    /// Returns the settings of a node with a name. No two nodes have the same name at the same time.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// Adds a label. A session that requires labels is owned only by nodes that have all of them.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.labels.push(label.into());
        self
    }

    /// Sets the most sessions that the node holds before it stops claiming more. Requests of its own
    /// clients are not limited.
    #[must_use]
    pub fn capacity(mut self, sessions: u64) -> Self {
        self.capacity = Some(sessions);
        self
    }

    /// Sets the time after which other nodes take the sessions of this one if it does not answer, at least
    /// half a second. It is 10 seconds by default.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(LEASE_MIN);
        self
    }

    /// Sets the time for which this node lets a process of another host wait for the return of that host.
    /// After it, the process ends as lost. It is 10 minutes by default.
    #[must_use]
    pub fn host_grace(mut self, grace: Duration) -> Self {
        self.host_grace = grace;
        self
    }

    /// Checks the name and the labels.
    pub fn check(&self) -> Result<(), Refusal> {
        self.name.iter().try_for_each(|name| check_text("a name of a node", name, NAME_MAX))?;
        self.labels.iter().try_for_each(|label| check_text("a label", label, LABEL_MAX))
    }
}

/// Checks the labels that a session is to require.
pub(crate) fn check_required_labels(labels: &[String]) -> Result<(), Refusal> {
    if labels.len() > REQUIRED_LABELS_MAX {
        return Err(Refusal::invalid(format!(
            "a session requires at most {REQUIRED_LABELS_MAX} labels"
        )));
    }
    labels.iter().try_for_each(|label| check_text("a label", label, LABEL_MAX))
}

fn check_text(noun: &str, text: &str, max: usize) -> Result<(), Refusal> {
    let is_valid = (1..=max).contains(&text.chars().count())
        && text.chars().all(|c| c.is_alphanumeric() || "-_.:=/".contains(c));
    match is_valid {
        true => Ok(()),
        false => Err(Refusal::invalid(format!(
            "{:?} is not {noun}: use 1 to {max} letters, digits and `-_.:=/`",
            truncate_chars(text, max)
        ))),
    }
}
