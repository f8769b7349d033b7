//! The state after the last commit, which readers see without asking the loop.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use brigade_model::id_map::IdMap;
use brigade_model::ids::{Owner, SessionId, TaskNo};
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
        let rows = SessionRows { row: row.clone(), tasks: BTreeMap::new() };
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
            inner.tasks.values().for_each(|row| visit(row));
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
            let rows = inner.tasks.iter().filter(|(_, row)| row.is_alive());
            alive.extend(rows.map(|(no, row)| AliveTask {
                task: TaskId { session: id, no: *no },
                session: inner.row.name.clone(),
                address: row.address(*no),
                state: row.state.clone(),
            }));
        }
        alive
    }

    /// Returns the view of a session that is in memory.
    #[cfg(feature = "agents")]
    pub(crate) fn get(&self, session: SessionId) -> Option<Arc<SessionView>> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner).get(&session)?.upgrade()
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
