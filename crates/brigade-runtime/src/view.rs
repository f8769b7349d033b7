//! The state after the last commit, which readers see without asking the loop.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use brigade_model::id_map::IdMap;
use brigade_model::ids::{Owner, Seq, SessionId, TaskNo};
#[cfg(feature = "agents")]
use brigade_model::shared_values::SharedValue;
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::SessionRow;

use crate::drain::AliveTask;
use crate::performer::TaskId;

/// The views of all sessions. The loop publishes to them after each commit. Evicted tasks are
/// missing here and are read from the store.
#[derive(Debug, Default)]
pub(crate) struct CommittedView {
    /// Kept alive by the loop while the session is in memory, and by the sessions that read it.
    sessions: RwLock<IdMap<SessionId, Weak<SessionView>>>,
}

#[derive(Debug)]
pub(crate) struct SessionView {
    inner: RwLock<SessionRows>,
}

#[derive(Debug)]
struct SessionRows {
    /// True while the loop of this runtime holds the session and publishes each change.
    is_held: bool,
    row: SessionRow,
    tasks: BTreeMap<TaskNo, Arc<TaskRow>>,
}

impl CommittedView {
    /// Returns the view of a session, and creates it if there is none.
    pub(crate) fn open(&self, row: &SessionRow) -> Arc<SessionView> {
        let found =
            self.sessions.read().unwrap_or_else(PoisonError::into_inner).get(&row.id).cloned();
        if let Some(view) = found.and_then(|view| view.upgrade()) {
            return view;
        }
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = sessions.get(&row.id).and_then(Weak::upgrade) {
            return view;
        }
        if sessions.len() == sessions.capacity() {
            sessions.retain(|_, view| view.strong_count() > 0);
        }
        let rows = SessionRows { is_held: false, row: row.clone(), tasks: BTreeMap::new() };
        let view = Arc::new(SessionView { inner: RwLock::new(rows) });
        sessions.insert(row.id, Arc::downgrade(&view));
        view
    }

    /// Visits every task that is in memory.
    pub(crate) fn for_each_task(&self, mut visit: impl FnMut(&TaskRow)) {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        let views: Vec<Arc<SessionView>> = sessions.values().filter_map(Weak::upgrade).collect();
        drop(sessions);
        for view in views {
            let inner = view.inner.read().unwrap_or_else(PoisonError::into_inner);
            // Other nodes count the tasks of their sessions.
            inner.tasks.values().filter(|_| inner.is_held).for_each(|row| visit(row));
        }
    }

    /// Returns the alive tasks of all sessions, by session and number.
    pub(crate) fn alive_tasks(&self) -> Vec<AliveTask> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        let views: BTreeMap<SessionId, Arc<SessionView>> =
            sessions.iter().filter_map(|(id, view)| Some((*id, view.upgrade()?))).collect();
        drop(sessions);
        let mut alive = Vec::new();
        for (id, view) in views {
            let inner = view.inner.read().unwrap_or_else(PoisonError::into_inner);
            let rows = inner.tasks.iter().filter(|(_, row)| inner.is_held && row.is_alive());
            alive.extend(rows.map(|(no, row)| AliveTask {
                task: TaskId { session: id, no: *no },
                session: inner.row.name.clone(),
                address: row.address(*no),
                state: row.state.clone(),
            }));
        }
        alive
    }

    /// Discards the rows of all sessions that the loops do not hold, since the store may have lost them.
    /// Returns the sessions.
    pub(crate) fn discard_unheld(&self) -> Vec<SessionId> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        let views: Vec<Arc<SessionView>> = sessions.values().filter_map(Weak::upgrade).collect();
        drop(sessions);
        views.iter().filter_map(|view| view.discard_unheld()).collect()
    }

    /// Returns the view of a session that is in memory, or that somebody reads.
    pub(crate) fn get(&self, session: SessionId) -> Option<Arc<SessionView>> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner).get(&session)?.upgrade()
    }
}

impl SessionRows {
    fn replace(&mut self, row: &SessionRow, tasks: impl IntoIterator<Item = StoredTask>) {
        self.row.clone_from(row);
        self.tasks = tasks.into_iter().map(|StoredTask { no, row }| (no, row)).collect();
    }
}

impl SessionView {
    /// Returns the value that the session's tasks share under a name.
    #[cfg(feature = "agents")]
    pub(crate) fn shared_value(&self, name: &str) -> Option<SharedValue> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.row.shared_values.get(name).cloned()
    }

    pub(crate) fn row(&self) -> SessionRow {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).row.clone()
    }

    pub(crate) fn get(&self, no: TaskNo) -> Option<Arc<TaskRow>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).tasks.get(&no).cloned()
    }

    /// Returns the tasks by ascending number; with an owner, only its children.
    pub(crate) fn list(&self, owner: Option<Owner>) -> Vec<StoredTask> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let wanted = inner.tasks.iter().filter(|(_, row)| owner.is_none_or(|o| row.owner == o));
        wanted.map(|(no, row)| StoredTask::new(*no, row.clone())).collect()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).is_held
    }

    /// Replaces all rows by those of a session that the loop holds from now on.
    pub(crate) fn hold(&self, row: &SessionRow, tasks: impl IntoIterator<Item = StoredTask>) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.is_held = true;
        inner.replace(row, tasks);
    }

    /// Marks that the loop does not hold the session any more. Its rows stay as they are.
    pub(crate) fn release(&self) {
        self.inner.write().unwrap_or_else(PoisonError::into_inner).is_held = false;
    }

    /// Replaces all rows by those of the store, unless the loop holds the session or has shown a later
    /// state.
    pub(crate) fn refresh(&self, row: &SessionRow, tasks: impl IntoIterator<Item = StoredTask>) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if !inner.is_held && row.seq >= inner.row.seq {
            inner.replace(row, tasks);
        }
    }

    /// Discards all rows unless the loop holds the session. The next refresh shows any state.
    fn discard_unheld(&self) -> Option<SessionId> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if inner.is_held {
            return None;
        }
        inner.row.seq = Seq(0);
        inner.tasks.clear();
        Some(inner.row.id)
    }

    /// Applies the changed rows of a commit.
    pub(crate) fn update(&self, row: &SessionRow, changed: impl IntoIterator<Item = StoredTask>) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.row.clone_from(row);
        for StoredTask { no, row } in changed {
            inner.tasks.insert(no, row);
        }
    }

    pub(crate) fn evict_all(&self) {
        self.inner.write().unwrap_or_else(PoisonError::into_inner).tasks.clear();
    }

    pub(crate) fn evict(&self, evicted: &[TaskNo]) {
        if evicted.is_empty() {
            return;
        }
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        for no in evicted {
            inner.tasks.remove(no);
        }
    }
}
