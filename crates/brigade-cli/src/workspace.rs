//! The session of a directory.

use std::io;
use std::path::{Path, PathBuf};

use crate::exit_code::CliError;

/// Returns the current directory, which may have been removed.
pub(crate) fn current_directory() -> Result<PathBuf, CliError> {
    std::env::current_dir().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CliError::usage("the current directory was removed").with_hint(
            "change to another one, or name one: `exec --cwd /PATH`, and --workspace NAME",
        ),
        _ => CliError::usage(format!("the current directory: {error}")),
    })
}

/// Returns the canonical path of the git root above a directory, or of the directory without one.
pub(crate) fn session_name_of(directory: &Path) -> Result<String, CliError> {
    let directory = directory
        .canonicalize()
        .map_err(|error| CliError::usage(format!("{}: {error}", directory.display())))?;
    let root = directory.ancestors().find(|ancestor| ancestor.join(".git").exists());
    let root = root.unwrap_or(&directory);
    root.to_str().map(str::to_owned).ok_or_else(|| {
        CliError::usage(format!("the path {} is not UTF-8", root.display()))
            .with_hint("name a workspace: --workspace NAME")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_belongs_to_its_repository() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let nested = root.join("src/deep");
        std::fs::create_dir_all(&nested).unwrap();
        assert_eq!(session_name_of(&nested).unwrap(), nested.to_str().unwrap());
        std::fs::create_dir(root.join(".git")).unwrap();
        assert_eq!(session_name_of(&nested).unwrap(), root.to_str().unwrap());
    }
}
