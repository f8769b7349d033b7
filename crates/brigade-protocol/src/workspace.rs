//! The session of a directory.

use std::path::Path;

use brigade_model::refusal::Refusal;

/// Returns the name of the session of a directory: the canonical path of the git root above it, or
/// of the directory without one.
pub fn session_name_of(directory: &Path) -> Result<String, Refusal> {
    let directory = directory
        .canonicalize()
        .map_err(|error| Refusal::invalid(format!("{}: {error}", directory.display())))?;
    let root = directory.ancestors().find(|ancestor| ancestor.join(".git").exists());
    let root = root.unwrap_or(&directory);
    root.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Refusal::invalid(format!("the path {} is not UTF-8", root.display())))
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
        assert!(session_name_of(&root.join("missing")).is_err());
    }
}
