//! Files of a repository and a worktree, which somebody else may have written.
//!
//! A repository whose parts are links is refused: git, and the sandbox of a task, would follow them
//! to other files of the user.

use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use brigade_process::private_file::open_plain;
use brigade_process::special_files::SpecialFileSearch;

/// Parts of a git directory that git writes for a worktree, and into which a sandbox may let a task
/// write.
const PARTS: [&str; 6] =
    ["objects/info", "objects/pack", "refs/heads", "logs/refs/heads", "worktrees", "packed-refs"];

/// The levels of directories in `objects/info` and `objects/pack`.
const OBJECTS_DEPTH: usize = 2;

/// The most bytes read of a file that names something.
const SMALL_FILE_MAX: u64 = 16 * 1024;

/// Reads a small plain file: no link, no pipe that would block.
pub(crate) fn read_small_file(path: &Path) -> io::Result<String> {
    read_plain_file(path, SMALL_FILE_MAX)
}

/// Reads a plain file that is not longer than `max` bytes: no link, no pipe that would block.
pub(crate) fn read_plain_file(path: &Path, max: u64) -> io::Result<String> {
    let file = open_plain(path)?;
    if file.metadata()?.len() > max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
    }
    io::read_to_string(file.take(max))
}

/// Checks that the parts of a repository that Brigade uses are in it. Returns the problem.
pub(crate) fn check_parts(repository: &Path) -> Result<(), String> {
    PARTS.iter().try_for_each(|part| check_part(repository, Path::new(part)))
}

/// Checks that no part of a path in the repository is a link. The path may be missing.
pub(crate) fn check_part(repository: &Path, part: &Path) -> Result<(), String> {
    if part.components().any(|component| !matches!(component, Component::Normal(_))) {
        return Err(format!("{} is not a plain path", part.display()));
    }
    let mut path = repository.to_owned();
    for component in part.components() {
        path.push(component);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => {
                return Err(format!("{} is a link, which Brigade does not follow", path.display()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        }
    }
    Ok(())
}

/// Returns true for a file that is no link, pipe or directory.
pub(crate) fn is_plain_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// Removes links and pipes that a task made in the directory of objects, which all branches share.
pub(crate) fn clean_objects(objects: &Path, since: SystemTime) -> io::Result<()> {
    let flat = SpecialFileSearch { since: Some(since), ..SpecialFileSearch::FLAT };
    let deep = SpecialFileSearch { removes_deeper: false, depth: OBJECTS_DEPTH, ..flat };
    let mut results = vec![flat.remove_from(objects)];
    for name in ["info", "pack"] {
        results.push(deep.remove_from(&objects.join(name)));
    }
    for number in 0..=u8::MAX {
        results.push(flat.remove_from(&objects.join(format!("{number:02x}"))));
    }
    results.into_iter().collect()
}

/// Returns the list of other repositories whose objects a repository uses.
pub(crate) fn alternates_file(repository: &str) -> PathBuf {
    Path::new(repository).join("objects/info/alternates")
}

/// Renames a list of other repositories that a sandboxed task made. Git would read objects from
/// them.
pub(crate) fn set_alternates_aside(repository: &str) -> io::Result<()> {
    let listed = alternates_file(repository);
    if !is_plain_file(&listed) {
        return Ok(());
    }
    tracing::warn!(path = %listed.display(), "a list of other repositories was renamed");
    fs::rename(&listed, listed.with_extension("removed"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_in_any_part_is_refused() {
        for part in PARTS {
            for link in Path::new(part).ancestors().filter(|path| *path != Path::new("")) {
                let dir = tempfile::tempdir().unwrap();
                assert_eq!(check_parts(dir.path()), Ok(()));
                let link = dir.path().join(link);
                fs::create_dir_all(link.parent().unwrap()).unwrap();
                symlink("/", &link).unwrap();
                assert!(check_parts(dir.path()).is_err(), "{}", link.display());
            }
        }
        assert!(check_part(Path::new("/"), Path::new("refs/../x")).is_err());
    }
}
