//! Options of the OS processes that a task runs, for processes and agents.

use std::path::Path;
use std::sync::Arc;

use brigade_model::refusal::Refusal;
use brigade_model::sandbox::{ResourceLimits, SandboxRequest};
use brigade_model::spec::TaskSpec;

use super::{DraftWork, NewTask, TaskType};
use crate::spawn_parent::SpawnParent;
use crate::worktrees;

/// A kind of task that runs OS processes: a [process](super::ProcessTask) or an agent. The options
/// of an agent hold for the processes of its descendants too.
pub trait RunsProcesses: TaskType {}

impl<K: RunsProcesses> NewTask<K> {
    /// Sets the working directory: an absolute path. An agent's processes and file tools start in
    /// it.
    #[must_use]
    pub fn cwd(self, cwd: impl AsRef<Path>) -> Self {
        let cwd = directory_text(cwd.as_ref());
        self.update(|work| {
            match work {
                DraftWork::Process(process) => process.cwd = Some(cwd?),
                #[cfg(feature = "agents")]
                DraftWork::Agent(agent, _) => agent.cwd = Some(cwd?),
                DraftWork::Job { .. } | DraftWork::Closure { .. } | DraftWork::Custom(_) => {}
            }
            Ok(())
        })
    }

    /// Gives the task a git worktree and a branch of its own, from the HEAD of its directory's
    /// repository. It works in the same directory of the worktree.
    ///
    /// The worktree is made when the task starts. When the task has ended, the worktree is removed
    /// if it holds no work: no commit, no change, no untracked file. Otherwise folder and branch are
    /// kept; [`TaskRow::worktree`](brigade_model::task::TaskRow::worktree) names both.
    #[must_use]
    pub fn worktree(mut self) -> Self {
        self.draft.worktree = true;
        self
    }

    /// Limits the resources of each OS process of the task.
    #[must_use]
    pub fn resources(mut self, resources: ResourceLimits) -> Self {
        self.draft.resources = resources;
        self
    }

    /// Runs the processes of the task in a sandbox of the working directory and the listed paths.
    /// If the kernel cannot do that, they fail without being executed.
    #[must_use]
    pub fn sandbox(mut self, request: SandboxRequest) -> Self {
        self.draft.sandbox_request = Some(request);
        self
    }
}

/// Refuses a worktree that could not be made.
pub(super) fn check_worktree(spec: &TaskSpec, parent: SpawnParent<'_>) -> Result<(), Refusal> {
    if !spec.has_worktree() {
        return Ok(());
    }
    if parent.inherited_sandbox().is_some_and(|sandbox| !sandbox.layers.is_empty()) {
        return Err(Refusal::forbidden(
            "a sandboxed task starts no task with a worktree: git would run outside of its sandbox",
        ));
    }
    worktrees::check_worktree(spec.work.cwd())
}

fn directory_text(path: &Path) -> Result<Arc<str>, Refusal> {
    path.to_str().map(Arc::from).ok_or_else(|| Refusal::invalid("the directory is not UTF-8"))
}
