//! What readers see: the state after the last commit, without asking the loop.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use brigade_model::ids::{Owner, TaskNo, TreeId};
use brigade_model::shared::SharedValue;
use brigade_model::task::TaskRow;
use brigade_model::tree::TreeRow;

/// Published by the loop after each commit. Tasks that left memory are not in it: they are read
/// from the store.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// Kept alive by the loop while it has the tree in memory, and by sessions that look at it.
    trees: RwLock<HashMap<TreeId, Weak<TreeView>>>,
}

#[derive(Debug)]
pub(crate) struct TreeView {
    inner: RwLock<TreeRows>,
}

#[derive(Debug)]
struct TreeRows {
    row: TreeRow,
    tasks: BTreeMap<TaskNo, Arc<TaskRow>>,
}

impl View {
    /// The view of a tree, made if nobody has one.
    pub(crate) fn open(&self, row: &TreeRow) -> Arc<TreeView> {
        let found = self.trees.read().unwrap_or_else(PoisonError::into_inner).get(&row.id).cloned();
        if let Some(view) = found.and_then(|view| view.upgrade()) {
            return view;
        }
        let mut trees = self.trees.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = trees.get(&row.id).and_then(Weak::upgrade) {
            return view;
        }
        if trees.len() == trees.capacity() {
            trees.retain(|_, view| view.strong_count() > 0);
        }
        let rows = TreeRows { row: row.clone(), tasks: BTreeMap::new() };
        let view = Arc::new(TreeView { inner: RwLock::new(rows) });
        trees.insert(row.id, Arc::downgrade(&view));
        view
    }

    /// Looks at every task that is in memory.
    pub(crate) fn each(&self, mut look: impl FnMut(&TaskRow)) {
        let trees = self.trees.read().unwrap_or_else(PoisonError::into_inner);
        let views: Vec<Arc<TreeView>> = trees.values().filter_map(Weak::upgrade).collect();
        drop(trees);
        for view in views {
            let inner = view.inner.read().unwrap_or_else(PoisonError::into_inner);
            inner.tasks.values().for_each(|row| look(row));
        }
    }

    /// The view of a tree that is in memory.
    pub(crate) fn get(&self, tree: TreeId) -> Option<Arc<TreeView>> {
        self.trees.read().unwrap_or_else(PoisonError::into_inner).get(&tree)?.upgrade()
    }
}

impl TreeView {
    /// What the tree's tasks share under a name.
    pub(crate) fn shared(&self, name: &str) -> Option<SharedValue> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.row.shared.get(name).cloned()
    }

    pub(crate) fn row(&self) -> TreeRow {
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
        row: &TreeRow,
        changed: impl IntoIterator<Item = (TaskNo, Arc<TaskRow>)>,
    ) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.row.clone_from(row);
        for (no, row) in changed {
            inner.tasks.insert(no, row);
        }
    }

    pub(crate) fn forget(&self, gone: &[TaskNo]) {
        if gone.is_empty() {
            return;
        }
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        for no in gone {
            inner.tasks.remove(no);
        }
    }
}
