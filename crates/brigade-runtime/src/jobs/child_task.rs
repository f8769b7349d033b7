//! A child that a job spawned.

use std::fmt;
use std::marker::PhantomData;

use brigade_model::call::SpawnedTask;
use brigade_model::ids::{RunNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::work::TaskKind;

/// A child that a job spawned, with the type of its result.
pub struct ChildTask<T = Json> {
    pub no: TaskNo,
    pub run: RunNo,
    pub kind: TaskKind,
    result_type: PhantomData<fn() -> T>,
}

impl<T> ChildTask<T> {
    /// Names a child that was spawned before, such as one whose number is in the job's state.
    pub fn new(no: TaskNo, run: RunNo, kind: TaskKind) -> Self {
        Self { no, run, kind, result_type: PhantomData }
    }

    /// Forgets the type of the result, so that children of different types fit in one list.
    #[must_use]
    pub fn erase(self) -> ChildTask {
        ChildTask::new(self.no, self.run, self.kind)
    }
}

impl<T> Clone for ChildTask<T> {
    fn clone(&self) -> Self {
        Self::new(self.no, self.run, self.kind.clone())
    }
}

impl<T> PartialEq for ChildTask<T> {
    fn eq(&self, other: &Self) -> bool {
        self.no == other.no && self.run == other.run && self.kind == other.kind
    }
}

impl<T> Eq for ChildTask<T> {}

impl<T> fmt::Debug for ChildTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}#{}", self.kind, self.no, self.run)
    }
}

impl<T> From<SpawnedTask> for ChildTask<T> {
    fn from(spawned: SpawnedTask) -> Self {
        Self::new(spawned.no, spawned.run, spawned.kind)
    }
}
