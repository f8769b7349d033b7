//! Typed state that tools and plugins share.
//!
//! A value is found by its type. Changes of a tool or a plugin are buffered until its step is recorded,
//! and are committed with it. After a crash, either the step and its changes are there, or neither. A
//! write is refused as a conflict if the value has changed since this writer read it.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_model::ids::Seq;
use brigade_model::json::Json;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::shared_values::{SharedValue, SharedWrite};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A type that is stored as state. Its default is the value before the first write.
pub trait StateKey: Serialize + DeserializeOwned + Default {
    /// The stored name. Two types must not share a name.
    const NAME: &'static str;
    const SCOPE: StateScope = StateScope::Run;
}

/// The scope of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateScope {
    /// One run of one agent.
    Run,
    /// All agents of the session.
    Session,
}

/// A reader of the committed state of the session.
pub trait SessionStateReader: Debug + Send + Sync {
    fn read(&self, name: &str) -> Option<SharedValue>;
}

/// A session without state.
#[derive(Clone, Copy, Debug)]
pub struct NoSessionState;

impl SessionStateReader for NoSessionState {
    fn read(&self, _name: &str) -> Option<SharedValue> {
        None
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateError {
    /// The stored value is not of this type, or the value cannot be serialized.
    Unreadable { name: String, problem: String },
    /// Another writer changed the value after this one read it. Nothing was changed.
    Conflict { name: String },
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { name, problem } => write!(f, "the state {name:?}: {problem}"),
            Self::Conflict { name } => write!(
                f,
                "the state {name:?} was changed by another call at the same time; nothing that this \
                 call wrote was kept"
            ),
        }
    }
}

impl std::error::Error for StateError {}

/// The state of one agent during one attempt.
#[derive(Clone, Debug)]
pub(crate) struct SharedState {
    values: Arc<Mutex<BTreeMap<String, Versioned>>>,
    session: Arc<dyn SessionStateReader>,
}

#[derive(Clone, Debug)]
struct Versioned {
    value: Json,
    version: u64,
}

/// The state as one tool call or one hook run reads and writes it.
#[derive(Clone)]
pub struct StateView {
    shared: SharedState,
    accesses: Arc<Mutex<ReadWriteSet>>,
}

#[derive(Debug, Default)]
struct ReadWriteSet {
    /// The version of each value at its first read.
    reads: BTreeMap<&'static str, SeenVersion>,
    writes: BTreeMap<&'static str, Json>,
}

#[derive(Clone, Copy, Debug)]
enum SeenVersion {
    Run(u64),
    Session(Option<Seq>),
}

/// State changes in a journal entry: new values by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct StateChanges(BTreeMap<String, Json>);

/// The state changes of one call or hook run, which can be rolled back.
#[derive(Debug, Default)]
pub(crate) struct StateDiff {
    pub(crate) changes: StateChanges,
    pub(crate) shared: Vec<SharedWrite>,
    before: BTreeMap<String, PriorValue>,
}

/// A value before a change, and the version of the change.
#[derive(Debug)]
struct PriorValue {
    value: Option<Json>,
    version: u64,
}

impl StateDiff {
    /// Returns true if the refusal concerns writes to the session's state. Otherwise it ends the attempt.
    pub(crate) fn is_refused_by(&self, refusal: &Refusal) -> bool {
        let kinds = [RefusalKind::Conflict, RefusalKind::Limit];
        kinds.contains(&refusal.kind) && !self.shared.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.shared.is_empty()
    }
}

impl StateChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl SharedState {
    pub(crate) fn new(session: Arc<dyn SessionStateReader>) -> Self {
        Self { values: Arc::default(), session }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Versioned>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a view for one call or one hook run.
    pub(crate) fn view(&self) -> StateView {
        StateView { shared: self.clone(), accesses: Arc::default() }
    }

    /// Applies the changes of a journal entry.
    pub(crate) fn apply_changes(&self, changes: &StateChanges) {
        let mut values = self.lock();
        for (name, value) in &changes.0 {
            let version = values.get(name).map_or(0, |current| current.version) + 1;
            values.insert(name.clone(), Versioned { value: value.clone(), version });
        }
    }

    /// Clears the state of the previous run.
    pub(crate) fn begin_run(&self) {
        self.lock().clear();
    }

    /// Takes the changes of a view, all or none. Changes of the scope `Run` are applied at once. Changes
    /// of the scope `Session` are returned as writes, which the store accepts or refuses.
    pub(crate) fn take_changes(&self, state: &StateView) -> Result<StateDiff, StateError> {
        let accesses = std::mem::take(&mut *state.lock_accesses());
        let mut diff = StateDiff::default();
        let values = self.lock();
        for (name, value) in &accesses.writes {
            match accesses.reads.get(name) {
                Some(SeenVersion::Session(seen)) => diff.shared.push(SharedWrite {
                    name: (*name).into(),
                    value: value.clone(),
                    expected_version: *seen,
                }),
                Some(SeenVersion::Run(seen)) => {
                    if values.get(*name).map_or(0, |current| current.version) != *seen {
                        return Err(StateError::Conflict { name: (*name).to_owned() });
                    }
                    let prior = PriorValue {
                        value: values.get(*name).map(|current| current.value.clone()),
                        version: seen + 1,
                    };
                    diff.before.insert((*name).to_owned(), prior);
                    diff.changes.0.insert((*name).to_owned(), value.clone());
                }
                None => {}
            }
        }
        drop(values);
        self.apply_changes(&diff.changes);
        Ok(diff)
    }

    /// Returns true if another writer has changed the session's state since it was read.
    pub(crate) fn is_stale(&self, diff: &StateDiff) -> bool {
        let version = |name: &str| self.session.read(name).map(|shared| shared.version);
        diff.shared.iter().any(|write| version(&write.name) != write.expected_version)
    }

    /// Restores the values before changes that were not committed. Later changes of others stay.
    pub(crate) fn roll_back(&self, diff: StateDiff) {
        let mut values = self.lock();
        for (name, PriorValue { value, version }) in diff.before {
            match (value, values.get_mut(&name).filter(|current| current.version == version)) {
                (_, None) => {}
                (Some(value), Some(current)) => {
                    *current = Versioned { value, version: version + 1 }
                }
                (None, Some(_)) => drop(values.remove(&name)),
            }
        }
    }
}

impl StateView {
    /// Creates an empty view whose changes are not stored, for calls outside an agent.
    pub fn detached() -> Self {
        SharedState::new(Arc::new(NoSessionState)).view()
    }

    fn lock_accesses(&self) -> MutexGuard<'_, ReadWriteSet> {
        self.accesses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value, including this view's own changes that are not committed yet.
    pub fn get<T: StateKey>(&self) -> Result<T, StateError> {
        let mut accesses = self.lock_accesses();
        let stored = self.read_stored::<T>(&mut accesses);
        let json = accesses.writes.get(T::NAME).cloned().or(stored);
        json.map_or_else(|| Ok(T::default()), |json| json.decode().map_err(unreadable_error::<T>))
    }

    pub fn set<T: StateKey>(&self, value: &T) -> Result<(), StateError> {
        let json = Json::of(value).map_err(unreadable_error::<T>)?;
        let mut accesses = self.lock_accesses();
        self.read_stored::<T>(&mut accesses);
        accesses.writes.insert(T::NAME, json);
        Ok(())
    }

    /// Reads the value, changes it and writes it back.
    pub fn update<T: StateKey, R>(
        &self,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R, StateError> {
        let mut value = self.get::<T>()?;
        let output = change(&mut value);
        self.set(&value)?;
        Ok(output)
    }

    /// Reads the stored value. The version at the first read is the one that a write expects.
    fn read_stored<T: StateKey>(&self, accesses: &mut ReadWriteSet) -> Option<Json> {
        let (stored, seen) = match T::SCOPE {
            StateScope::Run => {
                let current = self.shared.lock().get(T::NAME).cloned();
                let version = current.as_ref().map_or(0, |current| current.version);
                (current.map(|current| current.value), SeenVersion::Run(version))
            }
            StateScope::Session => {
                let shared = self.shared.session.read(T::NAME);
                let version = shared.as_ref().map(|shared| shared.version);
                (shared.map(|shared| shared.value), SeenVersion::Session(version))
            }
        };
        accesses.reads.entry(T::NAME).or_insert(seen);
        stored
    }
}

fn unreadable_error<T: StateKey>(problem: impl fmt::Display) -> StateError {
    StateError::Unreadable { name: T::NAME.to_owned(), problem: problem.to_string() }
}

impl Debug for StateView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateView")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Count(u32);

    impl StateKey for Count {
        const NAME: &'static str = "count";
    }

    #[test]
    fn other_views_see_a_change_after_it_is_taken() {
        let shared = SharedState::new(Arc::new(NoSessionState));
        let [one, two] = [shared.view(), shared.view()];
        one.update(|count: &mut Count| count.0 += 1).unwrap();
        assert_eq!(
            (one.get::<Count>().unwrap(), two.get::<Count>().unwrap()),
            (Count(1), Count(0))
        );
        let diff = shared.take_changes(&one).unwrap();
        assert!(!diff.changes.is_empty() && diff.shared.is_empty());
        assert_eq!(shared.view().get::<Count>().unwrap(), Count(1));
        shared.roll_back(diff);
        assert_eq!(shared.view().get::<Count>().unwrap(), Count(0));
    }

    #[test]
    fn a_write_after_a_concurrent_change_is_refused_by_name() {
        let shared = SharedState::new(Arc::new(NoSessionState));
        let [one, two] = [shared.view(), shared.view()];
        one.update(|count: &mut Count| count.0 += 1).unwrap();
        two.update(|count: &mut Count| count.0 += 10).unwrap();
        shared.take_changes(&one).unwrap();
        let refused = shared.take_changes(&two).unwrap_err();
        assert_eq!(refused, StateError::Conflict { name: "count".into() });
        assert_eq!(shared.view().get::<Count>().unwrap(), Count(1));
    }

    #[test]
    fn a_value_of_another_type_is_unreadable() {
        #[derive(Debug, Default, Serialize, Deserialize)]
        struct Other(Vec<String>);
        impl StateKey for Other {
            const NAME: &'static str = "count";
        }
        let shared = SharedState::new(Arc::new(NoSessionState));
        let state = shared.view();
        state.set(&Count(3)).unwrap();
        shared.take_changes(&state).unwrap();
        assert!(matches!(state.get::<Other>(), Err(StateError::Unreadable { .. })));
    }
}
