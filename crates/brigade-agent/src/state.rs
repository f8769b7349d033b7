//! Typed state that tools and plugins share.
//!
//! A value is found by its type. What a tool or a plugin changes is kept apart until its step is
//! written down, and is written down with it: after a crash there is either the step with its changes
//! or neither. Who writes over something that changed after it was looked at is refused, by name.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_model::ids::Seq;
use brigade_model::json::Json;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::shared_values::{SharedValue, SharedWrite};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A type that is kept as state. Its default is what is there before anybody wrote.
pub trait StateKey: Serialize + DeserializeOwned + Default {
    /// By which it is stored: two types must not have the same.
    const NAME: &'static str;
    const SCOPE: StateScope = StateScope::Run;
}

/// How far a value reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateScope {
    /// The agent's own, from the beginning of a run to its end.
    Run,
    /// All agents of the session have the same.
    Session,
}

/// What a session shares, as whoever runs the agent keeps it.
pub trait SessionStateReader: Debug + Send + Sync {
    fn read(&self, name: &str) -> Option<SharedValue>;
}

/// Nothing is shared.
#[derive(Clone, Copy, Debug)]
pub struct NoSessionState;

impl SessionStateReader for NoSessionState {
    fn read(&self, _name: &str) -> Option<SharedValue> {
        None
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateError {
    /// What is stored is not of this type, or the value cannot be stored.
    Unreadable { name: String, problem: String },
    /// Somebody else wrote it after it was looked at. Nothing was changed.
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

/// The values of one agent, for one attempt.
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

/// Where one tool call, or one plugin, reads and writes.
#[derive(Clone)]
pub struct StateView {
    shared: SharedState,
    accesses: Arc<Mutex<ReadWriteSet>>,
}

#[derive(Debug, Default)]
struct ReadWriteSet {
    /// What was seen of each value when it was first looked at.
    reads: BTreeMap<&'static str, SeenVersion>,
    writes: BTreeMap<&'static str, Json>,
}

#[derive(Clone, Copy, Debug)]
enum SeenVersion {
    Run(u64),
    Session(Option<Seq>),
}

/// What is written down of state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct StateChanges(BTreeMap<String, Json>);

/// What somebody changed.
#[derive(Debug, Default)]
pub(crate) struct StateDiff {
    pub(crate) changes: StateChanges,
    pub(crate) shared: Vec<SharedWrite>,
    /// What there was before, and the version that took its place.
    before: BTreeMap<String, (Option<Json>, u64)>,
}

impl StateDiff {
    /// Whether it is what the session shares that could not be written down, and not the attempt that
    /// is over.
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

    /// A place to read and write for somebody who does one thing.
    pub(crate) fn view(&self) -> StateView {
        StateView { shared: self.clone(), accesses: Arc::default() }
    }

    /// Takes in what was written down.
    pub(crate) fn apply_changes(&self, changes: &StateChanges) {
        let mut kept = self.lock();
        for (name, value) in &changes.0 {
            let version = kept.get(name).map_or(0, |kept| kept.version) + 1;
            kept.insert(name.clone(), Versioned { value: value.clone(), version });
        }
    }

    /// A new run begins: what was its own is gone.
    pub(crate) fn begin_run(&self) {
        self.lock().clear();
    }

    /// Takes over what somebody changed, all or nothing: for the agent itself at once, for the
    /// session as writes that are decided where they are stored.
    pub(crate) fn take_changes(&self, state: &StateView) -> Result<StateDiff, StateError> {
        let touched = std::mem::take(&mut *state.lock_accesses());
        let mut taken = StateDiff::default();
        let kept = self.lock();
        for (name, value) in &touched.writes {
            match touched.reads.get(name) {
                Some(SeenVersion::Session(seen)) => {
                    let (name, value, seen) = ((*name).into(), value.clone(), *seen);
                    taken.shared.push(SharedWrite { name, value, expected_version: seen });
                }
                Some(SeenVersion::Run(seen)) => {
                    if kept.get(*name).map_or(0, |kept| kept.version) != *seen {
                        return Err(StateError::Conflict { name: (*name).to_owned() });
                    }
                    let before = kept.get(*name).map(|kept| kept.value.clone());
                    taken.before.insert((*name).to_owned(), (before, seen + 1));
                    taken.changes.0.insert((*name).to_owned(), value.clone());
                }
                None => {}
            }
        }
        drop(kept);
        self.apply_changes(&taken.changes);
        Ok(taken)
    }

    /// Whether somebody else has changed what the session shares, after it was looked at.
    pub(crate) fn is_stale(&self, taken: &StateDiff) -> bool {
        let version = |name: &str| self.session.read(name).map(|shared| shared.version);
        taken.shared.iter().any(|write| version(&write.name) != write.expected_version)
    }

    /// What was taken could not be written down: it is as if nothing had been changed, but for what
    /// somebody else has changed since.
    pub(crate) fn roll_back(&self, taken: StateDiff) {
        let mut kept = self.lock();
        for (name, (before, version)) in taken.before {
            match (before, kept.get_mut(&name).filter(|now| now.version == version)) {
                (_, None) => {}
                (Some(value), Some(now)) => *now = Versioned { value, version: version + 1 },
                (None, Some(_)) => drop(kept.remove(&name)),
            }
        }
    }
}

impl StateView {
    /// Nothing is kept, and nothing that is written stays: for calls outside an agent.
    pub fn detached() -> Self {
        SharedState::new(Arc::new(NoSessionState)).view()
    }

    fn lock_accesses(&self) -> MutexGuard<'_, ReadWriteSet> {
        self.accesses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value as this writer sees it: with its own changes, before they are written down.
    pub fn get<T: StateKey>(&self) -> Result<T, StateError> {
        let mut touched = self.lock_accesses();
        let stored = self.read_stored::<T>(&mut touched);
        let json = touched.writes.get(T::NAME).cloned().or(stored);
        json.map_or_else(|| Ok(T::default()), |json| json.decode().map_err(unreadable_error::<T>))
    }

    pub fn set<T: StateKey>(&self, value: &T) -> Result<(), StateError> {
        let json = Json::of(value).map_err(unreadable_error::<T>)?;
        let mut touched = self.lock_accesses();
        self.read_stored::<T>(&mut touched);
        touched.writes.insert(T::NAME, json);
        Ok(())
    }

    /// Reads, changes and writes.
    pub fn update<T: StateKey, R>(
        &self,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R, StateError> {
        let mut value = self.get::<T>()?;
        let came_of_it = change(&mut value);
        self.set(&value)?;
        Ok(came_of_it)
    }

    /// What is stored. Which version that is counts from the first look on.
    fn read_stored<T: StateKey>(&self, touched: &mut ReadWriteSet) -> Option<Json> {
        let (stored, seen) = match T::SCOPE {
            StateScope::Run => {
                let kept = self.shared.lock().get(T::NAME).cloned();
                let version = kept.as_ref().map_or(0, |kept| kept.version);
                (kept.map(|kept| kept.value), SeenVersion::Run(version))
            }
            StateScope::Session => {
                let shared = self.shared.session.read(T::NAME);
                let version = shared.as_ref().map(|shared| shared.version);
                (shared.map(|shared| shared.value), SeenVersion::Session(version))
            }
        };
        touched.reads.entry(T::NAME).or_insert(seen);
        stored
    }
}

fn unreadable_error<T: StateKey>(problem: impl fmt::Display) -> StateError {
    StateError::Unreadable { name: T::NAME.to_owned(), problem: problem.to_string() }
}

impl Debug for StateView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
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
    fn what_is_written_is_seen_by_others_when_it_is_taken() {
        let board = SharedState::new(Arc::new(NoSessionState));
        let [one, two] = [board.view(), board.view()];
        one.update(|count: &mut Count| count.0 += 1).unwrap();
        assert_eq!(
            (one.get::<Count>().unwrap(), two.get::<Count>().unwrap()),
            (Count(1), Count(0))
        );
        let taken = board.take_changes(&one).unwrap();
        assert!(!taken.changes.is_empty() && taken.shared.is_empty());
        assert_eq!(board.view().get::<Count>().unwrap(), Count(1));
        board.roll_back(taken);
        assert_eq!(board.view().get::<Count>().unwrap(), Count(0));
    }

    #[test]
    fn who_writes_over_what_changed_meanwhile_is_refused_by_name() {
        let board = SharedState::new(Arc::new(NoSessionState));
        let [one, two] = [board.view(), board.view()];
        one.update(|count: &mut Count| count.0 += 1).unwrap();
        two.update(|count: &mut Count| count.0 += 10).unwrap();
        board.take_changes(&one).unwrap();
        let refused = board.take_changes(&two).unwrap_err();
        assert_eq!(refused, StateError::Conflict { name: "count".into() });
        assert_eq!(board.view().get::<Count>().unwrap(), Count(1));
    }

    #[test]
    fn what_is_of_another_type_is_told_and_not_guessed() {
        #[derive(Debug, Default, Serialize, Deserialize)]
        struct Other(Vec<String>);
        impl StateKey for Other {
            const NAME: &'static str = "count";
        }
        let board = SharedState::new(Arc::new(NoSessionState));
        let state = board.view();
        state.set(&Count(3)).unwrap();
        board.take_changes(&state).unwrap();
        assert!(matches!(state.get::<Other>(), Err(StateError::Unreadable { .. })));
    }
}
