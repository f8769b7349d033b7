//! The git worktree of a task as clients see it.

use std::fmt::{self, Display, Formatter};

use brigade_model::worktree::Worktree;
use serde::{Deserialize, Serialize};

/// The git worktree of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorktreeInfo {
    /// The folder of the worktree.
    pub path: String,
    pub branch: String,
    /// The id of the commit that was HEAD when the worktree was made.
    pub base: String,
    /// True if folder and branch were kept, because they hold work. `None` until the task has ended
    /// and that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<bool>,
}

impl WorktreeInfo {
    pub fn of(worktree: &Worktree) -> Self {
        Self {
            path: worktree.path.to_string(),
            branch: worktree.branch.to_string(),
            base: worktree.base.to_string(),
            kept: worktree.kept(),
        }
    }
}

impl Display for WorktreeInfo {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { path, branch, kept, .. } = self;
        match kept {
            None => write!(f, "{path}, branch {branch}"),
            Some(true) => write!(f, "{path}, branch {branch} (kept)"),
            Some(false) => write!(f, "removed without work, branch {branch}"),
        }
    }
}
