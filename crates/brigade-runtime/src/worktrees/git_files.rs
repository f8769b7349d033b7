//! The files by which git knows a worktree. Its task can write them, so they are checked before use
//! and restored after its end.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use brigade_model::worktree::Worktree;
use brigade_process::remove_tree::remove_tree;

use super::foreign_files::{check_part, is_plain_file, read_small_file};
use super::repository::SparseCheckout;

/// The text of `commondir`: the repository, seen from the git directory of a worktree.
const COMMON_DIR: &str = "../..\n";

/// Makes the directories of a worktree, which must not exist, and the files by which git knows it.
/// `git worktree add` would read the configuration of the repository.
pub(crate) fn register_worktree(worktree: &Worktree, reason: &str) -> io::Result<()> {
    let path = Path::new(&*worktree.path);
    let git_dir = Path::new(&*worktree.git_dir);
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    fs::create_dir(path)?;
    fs::create_dir(git_dir)?;
    // First the lock, so that no `git worktree prune` removes the rest.
    write_new(&git_dir.join("locked"), &format!("{reason}\n"))?;
    write_new(&git_dir.join("gitdir"), &gitdir_text(worktree))?;
    write_new(&git_dir.join("commondir"), COMMON_DIR)?;
    write_new(&git_dir.join("HEAD"), &head_text(worktree))?;
    write_new(&path.join(".git"), &dot_git_text(worktree))
}

/// Lets git check out a part of the files in a new worktree.
pub(crate) fn write_sparse_files(worktree: &Worktree, sparse: &SparseCheckout) -> io::Result<()> {
    let git_dir = Path::new(&*worktree.git_dir);
    fs::create_dir(git_dir.join("info"))?;
    write_new(&git_dir.join(SparseCheckout::PATTERNS), &sparse.patterns)?;
    write_new(&git_dir.join("config.worktree"), &sparse.config())
}

fn gitdir_text(worktree: &Worktree) -> String {
    format!("{}/.git\n", worktree.path)
}

fn head_text(worktree: &Worktree) -> String {
    format!("ref: refs/heads/{}\n", worktree.branch)
}

fn dot_git_text(worktree: &Worktree) -> String {
    format!("gitdir: {}\n", worktree.git_dir)
}

/// Writes the files of a kept worktree as they were when it was made. Its task could let them lead
/// the git of its user to another repository, whose configuration would be executed. Continues after
/// an error and returns the first one.
pub(crate) fn restore_git_files(worktree: &Worktree) -> io::Result<()> {
    let git_dir = Path::new(&*worktree.git_dir);
    let path = Path::new(&*worktree.path);
    let mut results = vec![
        remove_entry(&git_dir.join("config.worktree")),
        replace_file(&git_dir.join("commondir"), COMMON_DIR),
    ];
    if let Ok(Some(sparse)) = SparseCheckout::read_patterns(git_dir) {
        results.push(replace_file(&git_dir.join("config.worktree"), &sparse.config()));
    }
    // A folder that its user has moved is named by git.
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        results.push(open_to_owner(path));
        results.push(replace_file(&git_dir.join("gitdir"), &gitdir_text(worktree)));
        results.push(replace_file(&path.join(".git"), &dot_git_text(worktree)));
    }
    if !is_plain_file(&git_dir.join("HEAD")) {
        results.push(replace_file(&git_dir.join("HEAD"), &head_text(worktree)));
    }
    results.into_iter().collect()
}

/// Gives the owner of a directory all rights, which its task may have taken.
fn open_to_owner(directory: &Path) -> io::Result<()> {
    let mode = fs::symlink_metadata(directory)?.permissions().mode();
    match mode & 0o700 {
        0o700 => Ok(()),
        _ => fs::set_permissions(directory, Permissions::from_mode(mode | 0o700)),
    }
}

/// Puts a new file in place of any other one. Follows no link.
fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".brigade-new");
    let unfinished = PathBuf::from(unfinished);
    remove_entry(&unfinished)?;
    write_new(&unfinished, text)?;
    remove_entry(path)?;
    fs::rename(&unfinished, path)
}

/// Removes a file, link or directory, which may be missing.
fn remove_entry(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => remove_tree(path),
        Ok(_) => fs::remove_file(path),
    }
}

/// Writes a file that must not exist. Follows no link.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    File::options().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

/// Returns the git directory that the `.git` file of a worktree names.
fn read_git_dir(path: &Path) -> io::Result<String> {
    let text = read_small_file(&path.join(".git"))?;
    match text.strip_prefix("gitdir: ").map(str::trim_end) {
        Some(git_dir) if git_dir.starts_with('/') => Ok(git_dir.to_owned()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "its .git file is not git's own")),
    }
}

/// Locks a worktree again. A task can remove the lock, or put a link in its place.
pub(crate) fn lock_worktree(worktree: &Worktree, reason: &str) -> io::Result<()> {
    unlock_worktree(worktree)?;
    write_new(&Path::new(&*worktree.git_dir).join("locked"), &format!("{reason}\n"))
}

pub(crate) fn unlock_worktree(worktree: &Worktree) -> io::Result<()> {
    remove_entry(&Path::new(&*worktree.git_dir).join("locked"))
}

/// Returns true if the files that lead git from the worktree to its repository are unchanged. A
/// task can write them.
pub(crate) fn has_own_git_files(worktree: &Worktree) -> bool {
    let git_dir = Path::new(&*worktree.git_dir);
    let common = read_small_file(&git_dir.join("commondir"));
    let common = common.ok().and_then(|text| git_dir.join(text.trim_end()).canonicalize().ok());
    is_dot_git_own(worktree)
        && common.is_some_and(|common| common == Path::new(&*worktree.repository))
        && is_git_dir_own(worktree)
        && ["HEAD", "index"].iter().all(|name| is_plain_file(&git_dir.join(name)))
}

/// Returns true if the folder of a worktree names its git directory.
pub(crate) fn is_dot_git_own(worktree: &Worktree) -> bool {
    read_git_dir(Path::new(&*worktree.path)).is_ok_and(|named| named == *worktree.git_dir)
}

/// Returns true if the git directory is in the repository and names this worktree. Git can have
/// given its name to another worktree meanwhile.
pub(crate) fn is_git_dir_own(worktree: &Worktree) -> bool {
    let named = read_small_file(&Path::new(&*worktree.git_dir).join("gitdir"));
    is_git_dir_in_place(worktree)
        && named.is_ok_and(|named| named.trim_end() == format!("{}/.git", worktree.path))
}

/// Returns true if no link leads from the repository to the git directory of a worktree.
pub(crate) fn is_git_dir_in_place(worktree: &Worktree) -> bool {
    let git_dir = Path::new(&*worktree.git_dir);
    let repository = Path::new(&*worktree.repository);
    let part = git_dir.strip_prefix(repository);
    part.is_ok_and(|part| part.starts_with("worktrees") && check_part(repository, part).is_ok())
        && git_dir.is_dir()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use brigade_model::worktree::WorktreeState;

    use super::*;

    #[test]
    fn forged_git_files_are_restored_and_links_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let text = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let worktree = Worktree {
            path: text("folder").into(),
            branch: "brigade/soup/3/1".into(),
            base: "abc".into(),
            repository: text("soup").into(),
            git_dir: text("soup/worktrees/3").into(),
            origin: text("").into(),
            subdirectory: "".into(),
            serial: 1,
            state: WorktreeState::InUse,
        };
        fs::create_dir_all(root.join("soup/worktrees")).unwrap();
        register_worktree(&worktree, "test").unwrap();
        let git_dir = root.join("soup/worktrees/3");
        let mine = root.join("mine");
        fs::write(&mine, "mine").unwrap();
        for name in ["commondir", "config.worktree", "folder/.git", "HEAD"] {
            let file = match name.strip_prefix("folder/") {
                Some(name) => root.join("folder").join(name),
                None => git_dir.join(name),
            };
            let _ = fs::remove_file(&file);
            symlink(&mine, &file).unwrap();
        }
        fs::remove_file(git_dir.join("gitdir")).unwrap();
        fs::create_dir_all(git_dir.join("gitdir/deep")).unwrap();
        assert!(is_git_dir_in_place(&worktree) && !is_git_dir_own(&worktree));
        restore_git_files(&worktree).unwrap();
        assert!(is_git_dir_own(&worktree) && is_dot_git_own(&worktree));
        assert_eq!(fs::read_to_string(git_dir.join("commondir")).unwrap(), COMMON_DIR);
        assert_eq!(fs::read_to_string(git_dir.join("HEAD")).unwrap(), head_text(&worktree));
        assert!(fs::symlink_metadata(git_dir.join("config.worktree")).is_err());
        assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
    }
}
