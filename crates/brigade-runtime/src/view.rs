//! What readers see: the state after the last commit, without asking the loop.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use brigade_model::ids::{Owner, SessionId, TaskNo};
use brigade_model::shared_values::SharedValue;
use brigade_model::task::TaskRow;
use brigade_model::task_tree::SessionRow;

/// Published by the loop after each commit. Tasks that left memory are not in it: they are read
/// from the store.
#[derive(Debug, Default)]
pub(crate) struct CommittedView {
    /// Kept alive by the loop while it has the tree in memory, and by sessions that look at it.
    sessions: RwLock<HashMap<SessionId, Weak<SessionView>>>,
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
    /// The view of a tree, made if nobody has one.
    pub(crate) fn open(&self, row: &SessionRow) -> Arc<SessionView> {
        let found =
            self.sessions.read().unwrap_or_else(PoisonError::into_inner).get(&row.id).cloned();
        if let Some(view) = found.and_then(|view| view.upgrade()) {
            return view;
        }
        let mut trees = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = trees.get(&row.id).and_then(Weak::upgrade) {
            return view;
        }
        if trees.len() == trees.capacity() {
            trees.retain(|_, view| view.strong_count() > 0);
        }
        let rows = SessionRows { row: row.clone(), tasks: BTreeMap::new() };
        let view = Arc::new(SessionView { inner: RwLock::new(rows) });
        trees.insert(row.id, Arc::downgrade(&view));
        view
    }

    /// Looks at every task that is in memory.
    pub(crate) fn for_each_task(&self, mut look: impl FnMut(&TaskRow)) {
        let trees = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        let views: Vec<Arc<SessionView>> = trees.values().filter_map(Weak::upgrade).collect();
        drop(trees);
        for view in views {
            let inner = view.inner.read().unwrap_or_else(PoisonError::into_inner);
            inner.tasks.values().for_each(|row| look(row));
        }
    }

    /// The view of a tree that is in memory.
    pub(crate) fn get(&self, tree: SessionId) -> Option<Arc<SessionView>> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner).get(&tree)?.upgrade()
    }
}

impl SessionView {
    /// What the tree's tasks share under a name.
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

    /// In ascending order of their numbers; with an owner, its children only.
    pub(crate) fn list(&self, owner: Option<Owner>) -> Vec<(TaskNo, Arc<TaskRow>)> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let wanted = inner.tasks.iter().filter(|(_, row)| owner.is_none_or(|o| row.owner == o));
        wanted.map(|(no, row)| (*no, row.clone())).collect()
    }

    /// Takes in what a commit changed.
    pub(crate) fn update(
        &self,
        row: &SessionRow,
        changed: impl IntoIterator<Item = (TaskNo, Arc<TaskRow>)>,
    ) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.row.clone_from(row);
        for (no, row) in changed {
            inner.tasks.insert(no, row);
        }
    }

    pub(crate) fn evict(&self, gone: &[TaskNo]) {
        if gone.is_empty() {
            return;
        }
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        for no in gone {
            inner.tasks.remove(no);
        }
    }
}
