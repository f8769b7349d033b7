//! Brigade's own directories, which file tools may not use from any working directory: the state
//! directory with its keys, and the user's configuration, which grants permissions to agents.

use std::path::{Path, PathBuf};

use crate::WRITING_TOOLS;
use brigade_agent::tool::ToolError;

/// A directory that no permission rule opens to file tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateDirectory {
    path: PathBuf,
    access: PrivateAccess,
    /// The directory in it that is not private.
    except: Option<PathBuf>,
}

/// The access of file tools to a private directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrivateAccess {
    Nothing,
    Reading,
}

impl PrivateDirectory {
    /// Returns a directory that file tools may neither read nor write.
    pub fn hidden(path: &Path) -> Self {
        Self { path: canonicalize_existing(path), access: PrivateAccess::Nothing, except: None }
    }

    /// Returns a directory that file tools may only read.
    pub fn read_only(path: &Path) -> Self {
        Self { path: canonicalize_existing(path), access: PrivateAccess::Reading, except: None }
    }

    /// Excepts a directory in it, such as that of the worktrees in which agents work.
    #[must_use]
    pub fn except(self, path: &Path) -> Self {
        Self { except: Some(canonicalize_existing(path)), ..self }
    }

    /// Returns true if the tool may not use this path, which is absolute and without links.
    pub(crate) fn refuses(&self, tool: &str, path: &Path) -> bool {
        let is_concerned = match self.access {
            PrivateAccess::Nothing => true,
            PrivateAccess::Reading => WRITING_TOOLS.contains(&tool),
        };
        let is_excepted = self.except.as_ref().is_some_and(|except| path.starts_with(except));
        is_concerned && path.starts_with(&self.path) && !is_excepted
    }

    pub(crate) fn refusal(&self) -> ToolError {
        let directory = self.path.display();
        ToolError::new(format!(
            "{directory} is Brigade's own directory, which file tools may not use; nothing was done"
        ))
    }
}

/// Resolves the links of the existing part of a path.
fn canonicalize_existing(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    let mut found = path;
    loop {
        if let Ok(canonical) = found.canonicalize() {
            return rest.iter().rev().fold(canonical, |path, name| path.join(name));
        }
        match (found.parent(), found.file_name()) {
            (Some(parent), Some(name)) => {
                rest.push(name.to_owned());
                found = parent;
            }
            _ => return path.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_directory_is_recognised_behind_links_and_before_it_exists() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        let hidden = PrivateDirectory::hidden(&root.join("link/state"));
        assert!(hidden.refuses("read_file", &root.join("real/state/operator.key")));
        assert!(!hidden.refuses("write_file", &root.join("real/statement")));
        let hidden = hidden.except(&root.join("link/state/worktrees"));
        assert!(!hidden.refuses("write_file", &root.join("real/state/worktrees/s/3/menu")));
        assert!(hidden.refuses("read_file", &root.join("real/state/worktrees.db")));
        assert!(hidden.refuses("read_file", &root.join("real/state/operator.key")));
        let config = PrivateDirectory::read_only(&root.join("real"));
        assert!(config.refuses("write_file", &root.join("real/agents/evil.md")));
        assert!(config.refuses("edit_file", &root.join("real")));
        assert!(!config.refuses("read_file", &root.join("real/config.toml")));
    }
}
