//! Which session a directory means.

use std::io;
use std::path::{Path, PathBuf};

use crate::exit_code::CliError;

/// The directory of this process, which somebody may have removed.
pub(crate) fn current_directory() -> Result<PathBuf, CliError> {
    std::env::current_dir().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CliError::usage("the current directory was removed")
            .with_hint("go to another one, or name one: `exec --cwd /PATH`, and --workspace NAME"),
        _ => CliError::usage(format!("the current directory: {error}")),
    })
}

/// The canonical path of the git root above it, else of the directory itself.
pub(crate) fn session_name_of(directory: &Path) -> Result<String, CliError> {
    let directory = directory
        .canonicalize()
        .map_err(|error| CliError::usage(format!("{}: {error}", directory.display())))?;
    let root = directory.ancestors().find(|above| above.join(".git").exists());
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
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let below = root.join("src/deep");
        std::fs::create_dir_all(&below).unwrap();
        assert_eq!(session_name_of(&below).unwrap(), below.to_str().unwrap());
        std::fs::create_dir(root.join(".git")).unwrap();
        assert_eq!(session_name_of(&below).unwrap(), root.to_str().unwrap());
    }
}
