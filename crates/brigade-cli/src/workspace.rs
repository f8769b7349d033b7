//! Which session a directory means.

use std::path::Path;

use crate::exit::Failure;

/// The canonical path of the git root above it, else of the directory itself.
pub(crate) fn of_directory(directory: &Path) -> Result<String, Failure> {
    let directory = directory.canonicalize()?;
    let root = directory.ancestors().find(|above| above.join(".git").exists());
    let root = root.unwrap_or(&directory);
    root.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::usage(format!("the path {} is not UTF-8", root.display()))
            .hint("name a workspace: --workspace NAME")
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
        assert_eq!(of_directory(&below).unwrap(), below.to_str().unwrap());
        std::fs::create_dir(root.join(".git")).unwrap();
        assert_eq!(of_directory(&below).unwrap(), root.to_str().unwrap());
    }
}
