//! Where each execution of a command has its directory.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use brigade_model::ids::{Attempt, RunNo, SessionId, TaskNo};
use brigade_process::remove_tree::remove_tree;

use crate::performer::TaskId;

/// In the directory of an execution.
const SCRATCH_DIR: &str = "tmp";

/// `processes/TREE/TASK.RUN.ATTEMPT` below the state folder.
#[derive(Clone, Debug)]
pub(crate) struct ExecutionDirs {
    root: PathBuf,
}

/// One execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessExecution {
    pub(crate) task: TaskId,
    pub(crate) run: RunNo,
    pub(crate) attempt: Attempt,
}

impl ProcessExecution {
    /// What its processes bear in their environment.
    pub(crate) fn mark(&self) -> String {
        format!("{}.{}", self.task.session, self.dir_name())
    }

    fn dir_name(&self) -> String {
        format!("{}.{}.{}", self.task.no, self.run, self.attempt)
    }
}

impl ExecutionDirs {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { root: folder.join("processes") }
    }

    pub(crate) fn dir_of(&self, execution: &ProcessExecution) -> PathBuf {
        self.session_dir(execution.task.session).join(execution.dir_name())
    }

    fn session_dir(&self, tree: SessionId) -> PathBuf {
        self.root.join(tree.to_string())
    }

    /// Makes the directory of an execution, for nobody else to read.
    pub(crate) fn create_dir(&self, execution: &ProcessExecution) -> io::Result<PathBuf> {
        let dir = self.dir_of(execution);
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
    pub(crate) fn create_scratch_dir(dir: &Path) -> io::Result<PathBuf> {
        // What a rule is about must not be reached by a link.
        let scratch = dir.canonicalize()?.join(SCRATCH_DIR);
        fs::DirBuilder::new().mode(0o700).create(&scratch)?;
        Ok(scratch)
    }

    /// Nobody needs it when the command has ended.
    pub(crate) fn remove_scratch_dir(dir: &Path) {
        if let Err(error) = remove_tree(&dir.join(SCRATCH_DIR)) {
            tracing::warn!(%error, dir = %dir.display(), "a scratch folder is left");
        }
    }

    /// The directory of a run's last execution.
    pub(crate) fn last_dir_of(&self, task: TaskId, run: RunNo) -> Option<PathBuf> {
        let mine =
            self.executions_of_task(task).into_iter().filter(|execution| execution.run == run);
        mine.max_by_key(|execution| execution.attempt).map(|execution| self.dir_of(&execution))
    }

    /// Every task of which something is kept.
    pub(crate) fn tasks(&self) -> Vec<TaskId> {
        let trees = entry_names(&self.root)
            .filter_map(|name| Some(SessionId::from_uuid(name.parse().ok()?)));
        let mut found: Vec<TaskId> = trees
            .flat_map(|tree| self.session_executions(tree))
            .map(|execution| execution.task)
            .collect();
        found.sort_unstable_by_key(|task| (task.session, task.no));
        found.dedup();
        found
    }

    /// Every execution of a task of which something is kept.
    fn executions_of_task(&self, task: TaskId) -> Vec<ProcessExecution> {
        self.session_executions(task.session).filter(|execution| execution.task == task).collect()
    }

    /// The same of several tasks of a tree. All directories of the tree are looked through once.
    pub(crate) fn executions_of_tasks(
        &self,
        tree: SessionId,
        tasks: &HashSet<TaskNo>,
    ) -> Vec<ProcessExecution> {
        self.session_executions(tree)
            .filter(|execution| tasks.contains(&execution.task.no))
            .collect()
    }

    pub(crate) fn remove(&self, execution: &ProcessExecution) -> io::Result<()> {
        remove_tree(&self.dir_of(execution))
    }

    /// Removes the directory of a tree, unless an execution has something in it.
    pub(crate) fn remove_if_empty(&self, tree: SessionId) {
        let _ = fs::remove_dir(self.session_dir(tree));
    }

    fn session_executions(
        &self,
        tree: SessionId,
    ) -> impl Iterator<Item = ProcessExecution> + use<> {
        entry_names(&self.session_dir(tree)).filter_map(move |name| parse_dir_name(tree, &name))
    }
}

fn entry_names(dir: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}

fn parse_dir_name(tree: SessionId, name: &str) -> Option<ProcessExecution> {
    let mut parts = name.split('.').map(|part| part.parse::<u32>().ok());
    let (no, run, attempt) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() {
        return None;
    }
    let task = TaskId { session: tree, no: TaskNo::new(no)? };
    Some(ProcessExecution { task, run: RunNo(run), attempt: Attempt(attempt) })
}
