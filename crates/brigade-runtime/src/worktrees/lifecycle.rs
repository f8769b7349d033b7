//! Makes, examines and removes worktrees. All functions block, and all can be repeated.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use brigade_model::refusal::Refusal;
use brigade_model::worktree::{Worktree, WorktreeState};
use brigade_process::remove_tree::remove_tree;
use brigade_process::special_files::SpecialFileSearch;

use super::foreign_files::{check_part, clean_objects, read_small_file, set_alternates_aside};
use super::git::GitError;
use super::git_files::{
    has_own_git_files, is_dot_git_own, is_git_dir_in_place, is_git_dir_own, register_worktree,
    restore_git_files, unlock_worktree, write_sparse_files,
};
use super::repository::{BaseRepository, SparseCheckout};
use super::repository_view::{RepositoryView, RepositoryViews};

/// An empty folder among the branches of a task. Git ignores it, and removes no directory that has
/// it: a sandbox would not see the next directory of that name.
pub(crate) const BRANCH_DIR_HOLD: &str = ".brigade";

/// The attempt that a refusal names.
const ATTEMPT: &str = "no worktree can be made";

/// The most names that are tried for a folder and its branch.
const NAME_TRIES: u32 = 1_000;

/// Files of a git directory that belong to an operation in progress.
const OPERATIONS: [&str; 7] = [
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "BISECT_LOG",
    "rebase-merge",
    "rebase-apply",
];

/// The names of a worktree to make.
#[derive(Clone, Debug)]
pub(crate) struct WorktreeNames {
    /// The folder of the task's first worktree. Later ones end with `-2`, `-3` and so on.
    pub(crate) folder: PathBuf,
    /// The folder of the task's branches, such as `brigade/soup/3`. If it exists, somebody else may
    /// write it, and the next free one ends with `-2`, `-3` and so on.
    pub(crate) branch_folder: String,
    /// The number of the first name to try, from 1.
    pub(crate) first_serial: u32,
}

/// Returns a worktree to make, under the first names that are free. Nothing is made yet.
pub(crate) fn plan_worktree(
    views: &RepositoryViews,
    base: &BaseRepository,
    names: &WorktreeNames,
) -> Result<Worktree, Refusal> {
    let repository = Path::new(&*base.repository);
    let view = views.open(repository).map_err(|error| error.to_refusal(ATTEMPT))?;
    let branch_folder = find_branch_folder(&view, repository, &names.branch_folder)?;
    let serials = names.first_serial..names.first_serial.saturating_add(NAME_TRIES);
    for serial in serials {
        let planned = Worktree {
            path: numbered(&names.folder.display().to_string(), serial).into(),
            branch: format!("{branch_folder}/{serial}").into(),
            base: base.base.clone(),
            repository: base.repository.clone(),
            git_dir: "".into(),
            origin: base.origin.clone(),
            subdirectory: base.subdirectory.clone(),
            serial,
            state: WorktreeState::InUse,
        };
        let git_dir = git_dir_to_make(&planned);
        if !is_present(Path::new(&*planned.path)) && !is_present(&git_dir) {
            return Ok(planned);
        }
    }
    Err(Refusal::unavailable("no name for a worktree is free"))
}

/// Returns the first folder for branches that does not exist. A ref of that name also takes it, such
/// as a branch of an earlier version.
fn find_branch_folder(
    view: &RepositoryView,
    repository: &Path,
    first: &str,
) -> Result<String, Refusal> {
    for parent in Path::new(first).ancestors().skip(1).filter(|parent| *parent != Path::new("")) {
        let reference = format!("refs/heads/{}", parent.display());
        // Only this ref: a listing would open the refs of tasks that run, which can be pipes.
        let found = match view.read(&["show-ref", "--verify", "--quiet", "--", &reference]) {
            Ok(_) => true,
            Err(GitError::Failed(_)) => false,
            Err(error) => return Err(error.to_refusal(ATTEMPT)),
        };
        if found {
            let shown = parent.display();
            return Err(Refusal::invalid(format!(
                "no worktree can be made: the branch {shown} has the name of a folder that is \
                 needed for branches; rename it"
            )));
        }
    }
    for number in 1..=NAME_TRIES {
        let folder = numbered(first, number);
        let reference = format!("refs/heads/{folder}");
        let directories = [reference.clone(), format!("logs/{reference}")];
        if directories.iter().any(|directory| is_present(&repository.join(directory))) {
            continue;
        }
        let found = view.read(&["for-each-ref", "--format=%(refname)", "--", &reference]);
        if found.map_err(|error| error.to_refusal(ATTEMPT))?.is_empty() {
            return Ok(folder);
        }
    }
    Err(Refusal::unavailable("no name for a branch of a worktree is free"))
}

/// Returns a name with its number, which the first one does not have.
fn numbered(name: &str, number: u32) -> String {
    if number == 1 { name.to_owned() } else { format!("{name}-{number}") }
}

fn is_present(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Returns the git directory of a worktree that is not made yet. Its name has the session's id, so
/// that it is found again after a crash.
fn git_dir_to_make(worktree: &Worktree) -> PathBuf {
    let path = Path::new(&*worktree.path);
    let name = |path: Option<&Path>| -> String {
        let name = path.and_then(Path::file_name).unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let name = format!("{}-{}", name(path.parent()), name(Some(path)));
    Path::new(&*worktree.repository).join("worktrees").join(name)
}

/// Makes a planned worktree and locks it. Returns it with its git directory.
pub(crate) fn make_worktree(
    views: &RepositoryViews,
    planned: Worktree,
    sparse: Option<&SparseCheckout>,
    reason: &str,
) -> Result<Worktree, Refusal> {
    let git_dir = git_dir_to_make(&planned);
    let Some(git_dir) = git_dir.to_str() else {
        return Err(Refusal::invalid("no worktree can be made: a path is not UTF-8"));
    };
    let made = Worktree { git_dir: git_dir.into(), ..planned };
    let view = views.open(Path::new(&*made.repository));
    let mut view = view.map_err(|error| error.to_refusal(ATTEMPT))?;
    let failed = |error: GitError| error.to_refusal(ATTEMPT);
    register_worktree(&made, reason).map_err(|error| failed(GitError::NotRun(error)))?;
    if let Some(sparse) = sparse {
        let written = write_sparse_files(&made, sparse);
        written.map_err(|error| failed(GitError::NotRun(error)))?;
        view.add_settings(sparse.settings());
    }
    let reference = format!("refs/heads/{}", made.branch);
    // The empty id means that there is no such ref yet.
    let branch = ["update-ref", "--create-reflog", "-m", reason, "--", &reference, &made.base, ""];
    view.read(&branch).map_err(failed)?;
    view.write_worktree(&made, &["reset", "--hard", "--quiet"]).map_err(failed)?;
    prepare_directory(&made)?;
    Ok(made)
}

/// Creates the folder of a planned worktree's branches. Returns false if somebody else made it:
/// other sessions can have the same name and number.
pub(crate) fn claim_branch_folder(planned: &Worktree) -> Result<bool, Refusal> {
    let repository = Path::new(&*planned.repository);
    let failed =
        |problem: String| Refusal::unavailable(format!("no worktree can be made: {problem}"));
    check_branch_dirs(planned).map_err(failed)?;
    for directory in branch_dirs(planned) {
        let parent = directory.parent().unwrap_or(repository);
        fs::create_dir_all(parent).map_err(|error| failed(error.to_string()))?;
        match fs::create_dir(&directory) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(failed(error.to_string())),
        }
    }
    Ok(true)
}

/// Creates the task's directory in its worktree, if the commit does not have it. Refuses a
/// directory that a link of the commit leads out of the worktree.
pub(crate) fn prepare_directory(worktree: &Worktree) -> Result<(), Refusal> {
    let directory = worktree.directory();
    let refused = |problem: &str| {
        Err(Refusal::invalid(format!("the directory {directory} of its worktree: {problem}")))
    };
    let Ok(top) = Path::new(&*worktree.path).canonicalize() else {
        return refused("the worktree is missing");
    };
    let mut existing = Path::new(&directory);
    let found = loop {
        match (existing.canonicalize(), existing.parent()) {
            (Ok(found), _) => break found,
            (Err(_), Some(parent)) => existing = parent,
            (Err(_), None) => return refused("it is missing"),
        }
    };
    if !found.starts_with(&top) {
        return refused("a link leads out of the worktree");
    }
    match fs::create_dir_all(&directory) {
        Ok(()) => Ok(()),
        Err(error) => refused(&error.to_string()),
    }
}

/// Returns true if the folder of a worktree exists and git knows it.
pub(crate) fn is_usable(worktree: &Worktree) -> bool {
    let head = Path::new(&*worktree.git_dir).join("HEAD");
    Path::new(&*worktree.path).is_dir()
        && head.is_file()
        && is_git_dir_own(worktree)
        && is_dot_git_own(worktree)
}

/// Removes a worktree in which no work was ever started: nothing in it is anybody's.
pub(crate) fn discard_worktree(
    views: &RepositoryViews,
    worktree: &Worktree,
) -> Result<(), GitError> {
    let mut worktree = worktree.clone();
    if worktree.git_dir.is_empty() {
        worktree.git_dir = git_dir_to_make(&worktree).to_string_lossy().into();
    }
    remove_tree(Path::new(&*worktree.path)).map_err(GitError::NotRun)?;
    remove_empty_parent(&worktree);
    if !Path::new(&*worktree.repository).is_dir() {
        return Ok(());
    }
    // A git directory without the name of its worktree was not finished.
    let named = Path::new(&*worktree.git_dir).join("gitdir");
    if !is_present(&named) || is_git_dir_own(&worktree) {
        remove_tree(Path::new(&*worktree.git_dir)).map_err(GitError::NotRun)?;
    }
    delete_branch(&views.open(Path::new(&*worktree.repository))?, &worktree)
}

/// The end of a task whose worktree is released.
pub(crate) struct EndedTask<'a> {
    /// A time after which its work began. Files of the repository that are older are not its own.
    pub(crate) since: Option<SystemTime>,
    /// True if a list of other repositories that is there now is the work of a sandboxed task.
    pub(crate) has_made_alternates: bool,
    /// Stores that the removal begins. A removal that was interrupted is finished later.
    pub(crate) store_removal: &'a dyn Fn() -> io::Result<()>,
}

/// Releases the worktree of an ended task: removes it if it holds no work, else unlocks it.
pub(crate) fn release_worktree(
    views: &RepositoryViews,
    worktree: &Worktree,
    ended: &EndedTask<'_>,
) -> Result<WorktreeState, GitError> {
    let repository = Path::new(&*worktree.repository);
    if !repository.is_dir() {
        // Nothing can be said about work whose repository is gone, so it is not touched.
        return Ok(WorktreeState::Kept);
    }
    // First, because git would follow links and wait for pipes.
    remove_special_files(worktree, ended);
    let is_own = is_git_dir_own(worktree);
    let view = match views.open(repository) {
        Ok(view) => Some(view),
        Err(GitError::Failed(problem)) => {
            tracing::warn!(%problem, path = %worktree.path, "a worktree cannot be examined");
            None
        }
        Err(error) => return Err(error),
    };
    let unused = view.filter(|_| is_own || !is_present(Path::new(&*worktree.path)));
    let unused = match unused {
        Some(view) => is_unused(&view, worktree)?.then_some(view),
        None => None,
    };
    let Some(view) = unused else {
        keep_worktree(worktree);
        return Ok(WorktreeState::Kept);
    };
    (ended.store_removal)().map_err(GitError::NotRun)?;
    if let Err(error) = remove_directories(worktree, is_own) {
        tracing::warn!(%error, path = %worktree.path, "a worktree was not removed");
        if is_own {
            log_problem(worktree, unlock_worktree(worktree));
        }
        return Ok(WorktreeState::Kept);
    }
    remove_empty_parent(worktree);
    delete_branch(&view, worktree)?;
    Ok(WorktreeState::Removed)
}

/// Removes links and pipes that a task made among git's files.
fn remove_special_files(worktree: &Worktree, ended: &EndedTask<'_>) {
    if check_branch_dirs(worktree).is_ok() {
        for directory in branch_dirs(worktree) {
            log_problem(worktree, SpecialFileSearch::DEEP.remove_from(&directory));
        }
    }
    if is_git_dir_in_place(worktree) {
        let git_dir = Path::new(&*worktree.git_dir);
        log_problem(worktree, SpecialFileSearch::DEEP.remove_from(git_dir));
    }
    if let Some(since) = ended.since {
        let objects = Path::new(&*worktree.repository).join("objects");
        log_problem(worktree, clean_objects(&objects, since));
    }
    if ended.has_made_alternates {
        log_problem(worktree, set_alternates_aside(&worktree.repository));
    }
}

/// Restores and unlocks a worktree that is kept. Its branch folder may be removed by git from now
/// on.
fn keep_worktree(worktree: &Worktree) {
    release_branch_dirs(worktree);
    if is_git_dir_in_place(worktree) {
        log_problem(worktree, restore_git_files(worktree));
        log_problem(worktree, unlock_worktree(worktree));
    }
}

fn log_problem(worktree: &Worktree, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(%error, path = %worktree.path, "a worktree was not cleaned up");
    }
}

/// Returns true if neither branch nor folder have work. A missing folder has none.
fn is_unused(view: &RepositoryView, worktree: &Worktree) -> Result<bool, GitError> {
    if !is_branch_unused(view, worktree)? {
        return Ok(false);
    }
    Ok(!is_present(Path::new(&*worktree.path)) || is_clean(view, worktree)?)
}

/// Removes the folder of a worktree and its git directory. `git worktree remove` would examine the
/// folder once more, with the configuration of the repository.
fn remove_directories(worktree: &Worktree, is_own: bool) -> io::Result<()> {
    // First, so that a folder of which a part is removed is never used again.
    let _ = fs::remove_file(Path::new(&*worktree.path).join(".git"));
    remove_tree(Path::new(&*worktree.path))?;
    if is_own {
        remove_tree(Path::new(&*worktree.git_dir))?;
    }
    Ok(())
}

/// Removes the folder of the session's worktrees, if this was the last one.
fn remove_empty_parent(worktree: &Worktree) {
    if let Some(parent) = Path::new(&*worktree.path).parent() {
        let _ = fs::remove_dir(parent);
    }
}

/// Returns true if another worktree has the branch checked out, or the user does. Git itself would
/// wait for a pipe that a task made in its git directory.
fn is_branch_elsewhere(worktree: &Worktree) -> bool {
    let repository = Path::new(&*worktree.repository);
    let expected = format!("ref: refs/heads/{}", worktree.branch);
    let has_branch = |git_dir: &Path| {
        read_small_file(&git_dir.join("HEAD")).is_ok_and(|head| head.trim_end() == expected)
    };
    let others = fs::read_dir(repository.join("worktrees")).into_iter().flatten().flatten();
    let mut others =
        others.map(|entry| entry.path()).filter(|path| path != Path::new(&*worktree.git_dir));
    has_branch(repository) || others.any(|git_dir| has_branch(&git_dir))
}

/// Deletes the branch if it still is what it was when it was made, and nobody has it checked out.
/// Removes its folder if that is empty then.
fn delete_branch(view: &RepositoryView, worktree: &Worktree) -> Result<(), GitError> {
    if is_branch_elsewhere(worktree) {
        return Ok(());
    }
    let reference = format!("refs/heads/{}", worktree.branch);
    match view.read(&["update-ref", "--no-deref", "-d", "--", &reference, &worktree.base]) {
        // It has another commit, or is deleted already.
        Ok(_) | Err(GitError::Failed(_)) => {}
        Err(error) => return Err(error),
    }
    release_branch_dirs(worktree);
    if check_branch_dirs(worktree).is_ok() {
        for directory in branch_dirs(worktree) {
            let _ = fs::remove_dir(directory);
        }
    }
    Ok(())
}

/// Lets git remove the directories of the task's branches when they are empty.
fn release_branch_dirs(worktree: &Worktree) {
    if check_branch_dirs(worktree).is_ok() {
        for directory in branch_dirs(worktree) {
            let _ = fs::remove_dir(directory.join(BRANCH_DIR_HOLD));
        }
    }
}

/// Checks that no link leads out of the repository to the directories of the task's branches.
fn check_branch_dirs(worktree: &Worktree) -> Result<(), String> {
    let repository = Path::new(&*worktree.repository);
    branch_dirs(worktree).iter().try_for_each(|directory| {
        check_part(repository, directory.strip_prefix(repository).unwrap_or(directory))
    })
}

/// Returns the directories of the task's own branches and of their reflogs. A branch of an earlier
/// version is in the folder of its session and has none.
pub(crate) fn branch_dirs(worktree: &Worktree) -> Vec<PathBuf> {
    let repository = Path::new(&*worktree.repository);
    let folder = Path::new(&*worktree.branch).parent();
    let Some(folder) = folder.filter(|folder| folder.components().count() >= 3) else {
        return Vec::new();
    };
    let roots = ["refs/heads", "logs/refs/heads"];
    roots.iter().map(|root| repository.join(root).join(folder)).collect()
}

/// Returns true if the branch has its first commit, or does not exist.
fn is_branch_unused(view: &RepositoryView, worktree: &Worktree) -> Result<bool, GitError> {
    let reference = format!("refs/heads/{}", worktree.branch);
    let args = ["for-each-ref", "--format=%(objectname)", "--", &reference];
    let found = view.read_line(&args)?;
    Ok(found.is_empty() || found == *worktree.base)
}

/// Returns true if a worktree has no work: no commit, no change and no untracked file. In doubt it
/// has. Its `config.worktree` is not read, and is no work.
fn is_clean(view: &RepositoryView, worktree: &Worktree) -> Result<bool, GitError> {
    let git_dir = Path::new(&*worktree.git_dir);
    if !has_own_git_files(worktree) || OPERATIONS.iter().any(|name| git_dir.join(name).exists()) {
        return Ok(false);
    }
    let examine = |args: &[&str]| match view.read_worktree(worktree, args) {
        Ok(output) => Ok(Some(output)),
        // A task can also make files for which git waits.
        Err(error) if error.is_of_repository() => {
            tracing::warn!(?error, path = %worktree.path, "a worktree cannot be examined");
            Ok(None)
        }
        Err(error) => Err(error),
    };
    let head = examine(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?;
    if head.is_none_or(|head| head.trim_ascii() != worktree.base.as_bytes()) {
        return Ok(false);
    }
    // Before the status, which would enter the repositories of submodules.
    let index = examine(&["ls-files", "-v", "--stage", "-z"])?;
    let index = index.as_deref().and_then(parse_index);
    if !index.is_some_and(|index| has_no_hidden_work(worktree, &index)) {
        return Ok(false);
    }
    let status = ["status", "--porcelain=v1", "-z", "--untracked-files=all"];
    Ok(examine(&status)?.is_some_and(|status| status.is_empty()))
}

/// Entries of an index whose files git does not examine.
#[derive(Debug, Default, PartialEq, Eq)]
struct UnexaminedFiles {
    submodules: Vec<PathBuf>,
    /// Files outside of a sparse checkout.
    skipped: Vec<PathBuf>,
}

/// Returns true if the files that git does not examine are not there: submodules are empty, and
/// files outside of a sparse checkout are missing.
fn has_no_hidden_work(worktree: &Worktree, index: &UnexaminedFiles) -> bool {
    let top = Path::new(&*worktree.path);
    let is_empty = |path: &Path| match fs::symlink_metadata(path) {
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(found) => {
            found.is_dir() && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
        }
    };
    let modules = Path::new(&*worktree.git_dir).join("modules");
    (index.submodules.is_empty() || is_empty(&modules))
        && index.submodules.iter().all(|path| is_empty(&top.join(path)))
        && index.skipped.iter().all(|path| !is_present(&top.join(path)))
}

/// Parses the entries of an index. Returns `None` if there is a conflict, or an entry that is
/// assumed to be unchanged.
fn parse_index(index: &[u8]) -> Option<UnexaminedFiles> {
    let mut files = UnexaminedFiles::default();
    for entry in index.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
        let tab = entry.iter().position(|byte| *byte == b'\t')?;
        let path = || PathBuf::from(OsStr::from_bytes(&entry[tab + 1..]));
        if entry.starts_with(b"H 160000 ") {
            files.submodules.push(path());
        } else if entry.starts_with(b"S ") {
            files.skipped.push(path());
        } else if !entry.starts_with(b"H ") {
            return None;
        }
    }
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_with_hidden_changes_is_refused() {
        assert_eq!(parse_index(b""), Some(UnexaminedFiles::default()));
        let index = b"H 100644 abc 0\ta\0H 160000 abc 0\tsub\0S 100644 abc 0\tfar\0";
        let expect =
            UnexaminedFiles { submodules: vec!["sub".into()], skipped: vec!["far".into()] };
        assert_eq!(parse_index(index), Some(expect));
        for entry in ["h 100644 abc 0\ta\0", "s 100644 abc 0\ta\0", "M 100644 abc 1\ta\0"] {
            assert_eq!(parse_index(entry.as_bytes()), None, "{entry:?}");
        }
    }
}
