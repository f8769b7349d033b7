//! What readers see: the state after the last commit, without asking the loop.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use brigade_model::ids::{Owner, TaskNo, TreeId};
use brigade_model::task::TaskRow;
use brigade_model::tree::TreeRow;

/// Published by the loop after each commit. Tasks that left memory are not in it: they are read
/// from the store.
#[derive(Debug, Default)]
pub(crate) struct View {
    trees: RwLock<HashMap<TreeId, Arc<TreeView>>>,
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
    pub(crate) fn tree(&self, id: TreeId) -> Option<Arc<TreeView>> {
        self.trees.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// The view of a tree, made if there is none yet.
    pub(crate) fn open(&self, row: &TreeRow) -> Arc<TreeView> {
        if let Some(view) = self.tree(row.id) {
            return view;
        }
        let mut trees = self.trees.write().unwrap_or_else(PoisonError::into_inner);
        let view = trees.entry(row.id).or_insert_with(|| {
            let rows = TreeRows { row: row.clone(), tasks: BTreeMap::new() };
            Arc::new(TreeView { inner: RwLock::new(rows) })
        });
        view.clone()
    }
}

impl TreeView {
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
