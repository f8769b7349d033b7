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
use brigade_model::shared::{SharedValue, SharedWrite};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A type that is kept as state. Its default is what is there before anybody wrote.
pub trait StateKey: Serialize + DeserializeOwned + Default {
    /// By which it is stored: two types must not have the same.
    const NAME: &'static str;
    const SCOPE: Scope = Scope::Run;
}

/// How far a value reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The agent's own, from the beginning of a run to its end.
    Run,
    /// All agents of the session have the same.
    Session,
}

/// What a session shares, as whoever runs the agent keeps it.
pub trait SessionState: Debug + Send + Sync {
    fn read(&self, name: &str) -> Option<SharedValue>;
}

/// Nothing is shared.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl SessionState for Alone {
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
pub(crate) struct Board {
    kept: Arc<Mutex<BTreeMap<String, Kept>>>,
    session: Arc<dyn SessionState>,
}

#[derive(Clone, Debug)]
struct Kept {
    value: Json,
    version: u64,
}

/// Where one tool call, or one plugin, reads and writes.
#[derive(Clone)]
pub struct State {
    board: Board,
    touched: Arc<Mutex<Touched>>,
}

#[derive(Debug, Default)]
struct Touched {
    /// What was seen of each value when it was first looked at.
    seen: BTreeMap<&'static str, Seen>,
    changed: BTreeMap<&'static str, Json>,
}

#[derive(Clone, Copy, Debug)]
enum Seen {
    Run(u64),
    Session(Option<Seq>),
}

/// What is written down of state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Changes(BTreeMap<String, Json>);

/// What somebody changed.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) changes: Changes,
    pub(crate) shared: Vec<SharedWrite>,
    /// What there was before, and the version that took its place.
    before: BTreeMap<String, (Option<Json>, u64)>,
}

impl Taken {
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

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Board {
    pub(crate) fn new(session: Arc<dyn SessionState>) -> Self {
        Self { kept: Arc::default(), session }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place to read and write for somebody who does one thing.
    pub(crate) fn state(&self) -> State {
        State { board: self.clone(), touched: Arc::default() }
    }

    /// Takes in what was written down.
    pub(crate) fn enter(&self, changes: &Changes) {
        let mut kept = self.lock();
        for (name, value) in &changes.0 {
            let version = kept.get(name).map_or(0, |kept| kept.version) + 1;
            kept.insert(name.clone(), Kept { value: value.clone(), version });
        }
    }

    /// A new run begins: what was its own is gone.
    pub(crate) fn begin_run(&self) {
        self.lock().clear();
    }

    /// Takes over what somebody changed, all or nothing: for the agent itself at once, for the
    /// session as writes that are decided where they are stored.
    pub(crate) fn take(&self, state: &State) -> Result<Taken, StateError> {
        let touched = std::mem::take(&mut *state.touched());
        let mut taken = Taken::default();
        let kept = self.lock();
        for (name, value) in &touched.changed {
            match touched.seen.get(name) {
                Some(Seen::Session(seen)) => {
                    let (name, value, seen) = ((*name).into(), value.clone(), *seen);
                    taken.shared.push(SharedWrite { name, value, seen });
                }
                Some(Seen::Run(seen)) => {
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
        self.enter(&taken.changes);
        Ok(taken)
    }

    /// Whether somebody else has changed what the session shares, after it was looked at.
    pub(crate) fn is_behind(&self, taken: &Taken) -> bool {
        let version = |name: &str| self.session.read(name).map(|shared| shared.version);
        taken.shared.iter().any(|write| version(&write.name) != write.seen)
    }

    /// What was taken could not be written down: it is as if nothing had been changed, but for what
    /// somebody else has changed since.
    pub(crate) fn give_back(&self, taken: Taken) {
        let mut kept = self.lock();
        for (name, (before, version)) in taken.before {
            match (before, kept.get_mut(&name).filter(|now| now.version == version)) {
                (_, None) => {}
                (Some(value), Some(now)) => *now = Kept { value, version: version + 1 },
                (None, Some(_)) => drop(kept.remove(&name)),
            }
        }
    }
}

impl State {
    /// Nothing is kept, and nothing that is written stays: for calls outside an agent.
    pub fn detached() -> Self {
        Board::new(Arc::new(Alone)).state()
    }

    fn touched(&self) -> MutexGuard<'_, Touched> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value as this writer sees it: with its own changes, before they are written down.
    pub fn get<T: StateKey>(&self) -> Result<T, StateError> {
        let mut touched = self.touched();
        let stored = self.look::<T>(&mut touched);
        let json = touched.changed.get(T::NAME).cloned().or(stored);
        json.map_or_else(|| Ok(T::default()), |json| json.decode().map_err(unreadable::<T>))
    }

    pub fn set<T: StateKey>(&self, value: &T) -> Result<(), StateError> {
        let json = Json::of(value).map_err(unreadable::<T>)?;
        let mut touched = self.touched();
        self.look::<T>(&mut touched);
        touched.changed.insert(T::NAME, json);
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
    fn look<T: StateKey>(&self, touched: &mut Touched) -> Option<Json> {
        let (stored, seen) = match T::SCOPE {
            Scope::Run => {
                let kept = self.board.lock().get(T::NAME).cloned();
                let version = kept.as_ref().map_or(0, |kept| kept.version);
                (kept.map(|kept| kept.value), Seen::Run(version))
            }
            Scope::Session => {
                let shared = self.board.session.read(T::NAME);
                let version = shared.as_ref().map(|shared| shared.version);
                (shared.map(|shared| shared.value), Seen::Session(version))
            }
        };
        touched.seen.entry(T::NAME).or_insert(seen);
        stored
    }
}

fn unreadable<T: StateKey>(problem: impl fmt::Display) -> StateError {
    StateError::Unreadable { name: T::NAME.to_owned(), problem: problem.to_string() }
}

impl Debug for State {
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
        let board = Board::new(Arc::new(Alone));
        let [one, two] = [board.state(), board.state()];
        one.update(|count: &mut Count| count.0 += 1).unwrap();
        assert_eq!(
            (one.get::<Count>().unwrap(), two.get::<Count>().unwrap()),
            (Count(1), Count(0))
        );
        let taken = board.take(&one).unwrap();
        assert!(!taken.changes.is_empty() && taken.shared.is_empty());
        assert_eq!(board.state().get::<Count>().unwrap(), Count(1));
        board.give_back(taken);
        assert_eq!(board.state().get::<Count>().unwrap(), Count(0));
    }

    #[test]
    fn who_writes_over_what_changed_meanwhile_is_refused_by_name() {
        let board = Board::new(Arc::new(Alone));
        let [one, two] = [board.state(), board.state()];
        one.update(|count: &mut Count| count.0 += 1).unwrap();
        two.update(|count: &mut Count| count.0 += 10).unwrap();
        board.take(&one).unwrap();
        let refused = board.take(&two).unwrap_err();
        assert_eq!(refused, StateError::Conflict { name: "count".into() });
        assert_eq!(board.state().get::<Count>().unwrap(), Count(1));
    }

    #[test]
    fn what_is_of_another_type_is_told_and_not_guessed() {
        #[derive(Debug, Default, Serialize, Deserialize)]
        struct Other(Vec<String>);
        impl StateKey for Other {
            const NAME: &'static str = "count";
        }
        let board = Board::new(Arc::new(Alone));
        let state = board.state();
        state.set(&Count(3)).unwrap();
        board.take(&state).unwrap();
        assert!(matches!(state.get::<Other>(), Err(StateError::Unreadable { .. })));
    }
}
