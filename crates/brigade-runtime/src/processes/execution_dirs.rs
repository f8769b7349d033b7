//! The directories of executions of processes.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use brigade_model::ids::{Attempt, RunNo, SessionId, TaskNo};
use brigade_process::remove_tree::remove_tree;

use crate::performer::TaskId;

/// The scratch directory, in the directory of an execution.
const SCRATCH_DIR: &str = "tmp";

/// The directories `processes/SESSION/TASK.RUN.ATTEMPT` in the state directory.
#[derive(Clone, Debug)]
pub(crate) struct ExecutionDirs {
    root: PathBuf,
}

/// One execution of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessExecution {
    pub(crate) task: TaskId,
    pub(crate) run: RunNo,
    pub(crate) attempt: Attempt,
}

impl ProcessExecution {
    /// Returns the mark that its processes have in their environment.
    pub(crate) fn mark(&self) -> String {
        format!("{}.{}", self.task.session, self.dir_name())
    }

    fn dir_name(&self) -> String {
        format!("{}.{}.{}", self.task.no, self.run, self.attempt)
    }
}

impl ExecutionDirs {
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self { root: state_dir.join("processes") }
    }

    pub(crate) fn dir_of(&self, execution: &ProcessExecution) -> PathBuf {
        self.session_dir(execution.task.session).join(execution.dir_name())
    }

    fn session_dir(&self, session: SessionId) -> PathBuf {
        self.root.join(session.to_string())
    }

    /// Creates the directory of an execution, private to this user.
    pub(crate) fn create_dir(&self, execution: &ProcessExecution) -> io::Result<PathBuf> {
        let dir = self.dir_of(execution);
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        match builder.create(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                builder.recursive(true).create(&dir)?;
            }
            created => created?,
        }
        Ok(dir)
    }

    /// Creates the directory for temporary files of a sandboxed process.
    pub(crate) fn create_scratch_dir(dir: &Path) -> io::Result<PathBuf> {
        // A path in a sandbox rule must not contain a link.
        let scratch = dir.canonicalize()?.join(SCRATCH_DIR);
        fs::DirBuilder::new().mode(0o700).create(&scratch)?;
        Ok(scratch)
    }

    /// Removes the scratch directory of a process that has ended.
    pub(crate) fn remove_scratch_dir(dir: &Path) {
        if let Err(error) = remove_tree(&dir.join(SCRATCH_DIR)) {
            tracing::warn!(%error, dir = %dir.display(), "a scratch directory could not be removed");
        }
    }

    /// Returns the directory of a run's last execution.
    pub(crate) fn last_dir_of(&self, task: TaskId, run: RunNo) -> Option<PathBuf> {
        let of_run =
            self.executions_of_task(task).into_iter().filter(|execution| execution.run == run);
        of_run.max_by_key(|execution| execution.attempt).map(|execution| self.dir_of(&execution))
    }

    /// Returns every execution that has a directory.
    pub(crate) fn executions(&self) -> Vec<ProcessExecution> {
        let sessions = entry_names(&self.root)
            .filter_map(|name| Some(SessionId::from_uuid(name.parse().ok()?)));
        sessions.flat_map(|session| self.session_executions(session)).collect()
    }

    /// Returns every task that has a directory.
    pub(crate) fn tasks(&self) -> Vec<TaskId> {
        let mut found: Vec<TaskId> =
            self.executions().into_iter().map(|execution| execution.task).collect();
        found.sort_unstable_by_key(|task| (task.session, task.no));
        found.dedup();
        found
    }

    /// Returns the executions of a task that have a directory.
    fn executions_of_task(&self, task: TaskId) -> Vec<ProcessExecution> {
        self.session_executions(task.session).filter(|execution| execution.task == task).collect()
    }

    /// Returns the executions of several tasks of a session, reading its directory once.
    pub(crate) fn executions_of_tasks(
        &self,
        session: SessionId,
        tasks: &HashSet<TaskNo>,
    ) -> Vec<ProcessExecution> {
        self.session_executions(session)
            .filter(|execution| tasks.contains(&execution.task.no))
            .collect()
    }

    pub(crate) fn remove(&self, execution: &ProcessExecution) -> io::Result<()> {
        remove_tree(&self.dir_of(execution))
    }

    /// Removes the directory of a session if it is empty.
    pub(crate) fn remove_if_empty(&self, session: SessionId) {
        let _ = fs::remove_dir(self.session_dir(session));
    }

    fn session_executions(
        &self,
        session: SessionId,
    ) -> impl Iterator<Item = ProcessExecution> + use<> {
        entry_names(&self.session_dir(session))
            .filter_map(move |name| parse_dir_name(session, &name))
    }
}

fn entry_names(dir: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}

fn parse_dir_name(session: SessionId, name: &str) -> Option<ProcessExecution> {
    let mut parts = name.split('.').map(|part| part.parse::<u32>().ok());
    let no = parts.next()??;
    let run = parts.next()??;
    let attempt = parts.next()??;
    if parts.next().is_some() {
        return None;
    }
    let task = TaskId { session, no: TaskNo::new(no)? };
    Some(ProcessExecution { task, run: RunNo(run), attempt: Attempt(attempt) })
}
