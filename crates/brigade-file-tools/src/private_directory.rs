//! Directories of the runtime itself that file tools stay out of, wherever an agent works: the state
//! with its keys, and the user's configuration, which says what agents may do.

use std::path::{Path, PathBuf};

use crate::WRITING_TOOLS;
use brigade_agent::tool::ToolError;

/// A directory that no rule opens to file tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateDirectory {
    path: PathBuf,
    access: PrivateAccess,
}

/// What file tools may do in a private directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrivateAccess {
    Nothing,
    Reading,
}

impl PrivateDirectory {
    /// A directory of which file tools neither read nor write anything.
    pub fn hidden(path: &Path) -> Self {
        Self { path: canonicalize_existing(path), access: PrivateAccess::Nothing }
    }

    /// A directory that file tools do not write to.
    pub fn read_only(path: &Path) -> Self {
        Self { path: canonicalize_existing(path), access: PrivateAccess::Reading }
    }

    /// Whether a tool has to stay out of a path, which is absolute and without links.
    pub(crate) fn refuses(&self, tool: &str, path: &Path) -> bool {
        let is_concerned = match self.access {
            PrivateAccess::Nothing => true,
            PrivateAccess::Reading => WRITING_TOOLS.contains(&tool),
        };
        is_concerned && path.starts_with(&self.path)
    }

    pub(crate) fn refusal(&self) -> ToolError {
        let directory = self.path.display();
        ToolError::new(format!(
            "{directory} is Brigade's own directory, which file tools stay out of; nothing was done"
        ))
    }
}

/// Follows the links of as much of a path as there is.
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
    fn a_private_directory_is_found_behind_links_and_before_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        let hidden = PrivateDirectory::hidden(&root.join("link/state"));
        assert!(hidden.refuses("read_file", &root.join("real/state/operator.key")));
        assert!(!hidden.refuses("write_file", &root.join("real/statement")));
        let config = PrivateDirectory::read_only(&root.join("real"));
        assert!(config.refuses("write_file", &root.join("real/agents/evil.md")));
        assert!(config.refuses("edit_file", &root.join("real")));
        assert!(!config.refuses("read_file", &root.join("real/config.toml")));
    }
}
