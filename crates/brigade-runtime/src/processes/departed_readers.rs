//! Readers of output that left before their process started.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use brigade_process::lease;

use crate::performer::TaskId;

/// The tasks whose first reader left before their process started.
#[derive(Debug, Default)]
pub(crate) struct DepartedReaders(Mutex<HashSet<TaskId>>);

impl DepartedReaders {
    /// Ends a reader's lease on the output of a process, which may not have started yet.
    pub(crate) fn release_lease(&self, task: TaskId, dir: &Path, holder: u64) -> io::Result<()> {
        match lease::release_lease(dir, holder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.lock().insert(task);
                // The directory is created before the start reads the set.
                lease::release_lease(dir, holder)
            }
            released => released,
        }
    }

    /// Returns true if the first reader of a task has left, and forgets it.
    pub(super) fn take(&self, task: TaskId) -> bool {
        self.lock().remove(&task)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<TaskId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
