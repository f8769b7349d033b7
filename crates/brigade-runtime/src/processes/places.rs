//! Where each execution of a command has its directory.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use brigade_model::ids::{Attempt, RunNo, TaskNo, TreeId};
use brigade_process::remove_tree::remove_tree;

use crate::performer::TaskId;

/// In the directory of an execution.
const SCRATCH: &str = "tmp";

/// `processes/TREE/TASK.RUN.ATTEMPT` below the state folder.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    root: PathBuf,
}

/// One execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Execution {
    pub(crate) task: TaskId,
    pub(crate) run: RunNo,
    pub(crate) attempt: Attempt,
}

impl Execution {
    /// What its processes bear in their environment.
    pub(crate) fn mark(&self) -> String {
        format!("{}.{}", self.task.tree, self.name())
    }

    fn name(&self) -> String {
        format!("{}.{}.{}", self.task.no, self.run, self.attempt)
    }
}

impl Places {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { root: folder.join("processes") }
    }

    pub(crate) fn of(&self, execution: &Execution) -> PathBuf {
        self.tree(execution.task.tree).join(execution.name())
    }

    fn tree(&self, tree: TreeId) -> PathBuf {
        self.root.join(tree.to_string())
    }

    /// Makes the directory of an execution, for nobody else to read.
    pub(crate) fn make(&self, execution: &Execution) -> io::Result<PathBuf> {
        let dir = self.of(execution);
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        match builder.create(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                builder.recursive(true).create(&dir)?;
            }
            made => made?,
        }
        Ok(dir)
    }

    /// Makes the folder in which a confined command keeps what it needs for a while.
    pub(crate) fn make_scratch(dir: &Path) -> io::Result<PathBuf> {
        // What a rule is about must not be reached by a link.
        let scratch = dir.canonicalize()?.join(SCRATCH);
        fs::DirBuilder::new().mode(0o700).create(&scratch)?;
        Ok(scratch)
    }

    /// Nobody needs it when the command has ended.
    pub(crate) fn remove_scratch(dir: &Path) {
        if let Err(error) = remove_tree(&dir.join(SCRATCH)) {
            tracing::warn!(%error, dir = %dir.display(), "a scratch folder is left");
        }
    }

    /// The directory of a run's last execution.
    pub(crate) fn last_of(&self, task: TaskId, run: RunNo) -> Option<PathBuf> {
        let mine = self.executions(task).into_iter().filter(|execution| execution.run == run);
        mine.max_by_key(|execution| execution.attempt).map(|execution| self.of(&execution))
    }

    /// Every task of which something is kept.
    pub(crate) fn kept(&self) -> Vec<TaskId> {
        let trees =
            names(&self.root).filter_map(|name| Some(TreeId::from_uuid(name.parse().ok()?)));
        let mut found: Vec<TaskId> =
            trees.flat_map(|tree| self.all(tree)).map(|execution| execution.task).collect();
        found.sort_unstable_by_key(|task| (task.tree, task.no));
        found.dedup();
        found
    }

    /// Every execution of a task of which something is kept.
    fn executions(&self, task: TaskId) -> Vec<Execution> {
        self.all(task.tree).filter(|execution| execution.task == task).collect()
    }

    /// The same of several tasks of a tree. All directories of the tree are looked through once.
    pub(crate) fn executions_of(&self, tree: TreeId, tasks: &HashSet<TaskNo>) -> Vec<Execution> {
        self.all(tree).filter(|execution| tasks.contains(&execution.task.no)).collect()
    }

    pub(crate) fn remove(&self, execution: &Execution) -> io::Result<()> {
        remove_tree(&self.of(execution))
    }

    /// Removes the directory of a tree, unless an execution has something in it.
    pub(crate) fn remove_if_empty(&self, tree: TreeId) {
        let _ = fs::remove_dir(self.tree(tree));
    }

    fn all(&self, tree: TreeId) -> impl Iterator<Item = Execution> + use<> {
        names(&self.tree(tree)).filter_map(move |name| parse(tree, &name))
    }
}

fn names(dir: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}

fn parse(tree: TreeId, name: &str) -> Option<Execution> {
    let mut parts = name.split('.').map(|part| part.parse::<u32>().ok());
    let (no, run, attempt) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() {
        return None;
    }
    let task = TaskId { tree, no: TaskNo::new(no)? };
    Some(Execution { task, run: RunNo(run), attempt: Attempt(attempt) })
}
