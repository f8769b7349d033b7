//! The git worktree of a task: its folder, its branch and the commit that both began with.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The git worktree of a task, as stored with the task before its work starts in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worktree {
    /// The folder of the worktree, an absolute path outside of the repository.
    pub path: Arc<str>,
    pub branch: Arc<str>,
    /// The id of the commit that was HEAD when the worktree was made.
    pub base: Arc<str>,
    /// The git directory that all worktrees of the repository share.
    pub repository: Arc<str>,
    /// The git directory of this worktree, in that of the repository.
    pub git_dir: Arc<str>,
    /// The directory for which the task was requested, without links.
    pub origin: Arc<str>,
    /// The task's directory in the worktree, relative to its folder. Empty for the folder itself.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub subdirectory: Arc<str>,
    /// The number of the worktree among those of the task, from 1.
    pub serial: u32,
    pub state: WorktreeState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorktreeState {
    /// The task is alive, or its end has not been examined yet.
    InUse,
    /// The task ended, and folder and branch hold its work.
    Kept,
    /// The task ended without work, and folder and branch are removed.
    Removed,
}

impl Worktree {
    /// Returns the working directory of the task in the worktree.
    pub fn directory(&self) -> String {
        match &*self.subdirectory {
            "" => self.path.to_string(),
            subdirectory => format!("{}/{subdirectory}", self.path),
        }
    }

    /// Returns whether folder and branch were kept. `None` until that is known.
    pub fn kept(&self) -> Option<bool> {
        match self.state {
            WorktreeState::InUse => None,
            WorktreeState::Kept => Some(true),
            WorktreeState::Removed => Some(false),
        }
    }
}
