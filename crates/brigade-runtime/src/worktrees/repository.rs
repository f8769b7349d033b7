//! The git repository of a task's directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_model::refusal::Refusal;

use super::foreign_files::{check_parts, read_plain_file, read_small_file};
use super::git::{Git, GitError, GitPlace, Setting};

/// A repository with a work tree and a commit, from which a worktree can be made.
#[derive(Clone, Debug)]
pub(crate) struct BaseRepository {
    /// The git directory that all worktrees share.
    pub(crate) repository: Arc<str>,
    /// The task's directory, without links.
    pub(crate) origin: Arc<str>,
    /// The task's directory relative to the top of its work tree. Empty for the top itself.
    pub(crate) subdirectory: Arc<str>,
    /// The id of the commit at HEAD.
    pub(crate) base: Arc<str>,
    /// The part of the files that the task's work tree has. `None` if it has all.
    pub(crate) sparse: Option<SparseCheckout>,
}

/// The settings of a work tree that has a part of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SparseCheckout {
    pub(crate) patterns: String,
}

impl SparseCheckout {
    /// The file of the patterns in a git directory.
    pub(crate) const PATTERNS: &str = "info/sparse-checkout";
    /// The most bytes read of the patterns.
    const PATTERNS_MAX: u64 = 4 * 1024 * 1024;

    fn read(git: &Git, git_dir: &Path) -> Result<Option<Self>, GitError> {
        let setting = ["config", "--type=bool", "--get", "core.sparseCheckout"];
        if git.read_settings(git_dir, &setting)?.trim_ascii() != b"true" {
            return Ok(None);
        }
        let problem = |error| GitError::Failed(format!("its sparse checkout: {error}"));
        Self::read_patterns(git_dir).map_err(problem)
    }

    /// Reads the patterns in a git directory. Without any, git checks out all files.
    pub(crate) fn read_patterns(git_dir: &Path) -> io::Result<Option<Self>> {
        match read_plain_file(&git_dir.join(Self::PATTERNS), Self::PATTERNS_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            patterns => Ok(Some(Self { patterns: patterns? })),
        }
    }

    /// Returns true if the patterns are directories: git begins such a list with the files at the
    /// top.
    fn is_cone(&self) -> bool {
        self.patterns.starts_with("/*\n!/*/\n")
    }

    pub(crate) fn settings(&self) -> [Setting; 2] {
        let is_cone = if self.is_cone() { "true" } else { "false" };
        [
            Setting::new("core.sparseCheckout", "true"),
            Setting::new("core.sparseCheckoutCone", is_cone),
        ]
    }

    /// Returns the configuration of a worktree with these patterns.
    pub(crate) fn config(&self) -> String {
        let is_cone = self.is_cone();
        format!("[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = {is_cone}\n")
    }
}

impl BaseRepository {
    /// Finds the repository of a directory. Refuses a directory without one.
    pub(crate) fn find(git: &Git, directory: &Path) -> Result<Self, Refusal> {
        let shown = directory.display();
        let invalid =
            |problem: &str| Refusal::invalid(format!("no worktree for {shown}: {problem}"));
        let origin = directory.canonicalize().map_err(|error| invalid(&error.to_string()))?;
        let place = GitPlace::Directory(&origin);
        let failed = |error: GitError| match error {
            GitError::Failed(problem) => invalid(&problem),
            error => error.to_refusal("no worktree can be made"),
        };
        git.check_version(&origin).map_err(failed)?;
        let kind = git.read_line(
            place,
            &[],
            &["rev-parse", "--is-bare-repository", "--is-inside-work-tree"],
        );
        match kind.map_err(failed)?.as_str() {
            "false\ntrue" => {}
            "true\nfalse" => return Err(invalid("the repository is bare")),
            _ => return Err(invalid("it is not in the work tree of a repository")),
        }
        let paths = [
            "rev-parse",
            "--path-format=absolute",
            "--git-common-dir",
            "--git-dir",
            "--show-toplevel",
            "--show-prefix",
        ];
        let paths = git.read_line(place, &[], &paths).map_err(failed)?;
        let [repository, git_dir, top, prefix] = paths.split('\n').collect::<Vec<_>>()[..] else {
            return Err(invalid("a path has a line break"));
        };
        let real = |path: &str| -> Result<PathBuf, Refusal> {
            Path::new(path).canonicalize().map_err(|error| invalid(&error.to_string()))
        };
        let repository = real(repository)?;
        let git_dir = real(git_dir)?;
        let found =
            FoundRepository { repository: &repository, git_dir: &git_dir, top: &real(top)? };
        if !found.knows_its_work_tree(git).map_err(failed)? {
            return Err(invalid(
                "its .git leads to a repository that does not know this directory; use the \
                 directory of that repository, or set its core.worktree",
            ));
        }
        check_parts(&repository).map_err(|problem| invalid(&problem))?;
        let head = ["rev-parse", "--verify", "--quiet", "--end-of-options", "HEAD^{commit}"];
        let base = git.read_line(place, &[], &head).map_err(|error| match error {
            GitError::Failed(_) => invalid("the repository has no commit yet"),
            error => failed(error),
        })?;
        let text = |path: &Path| -> Result<Arc<str>, Refusal> {
            path.to_str().map(Arc::from).ok_or_else(|| invalid("a path is not UTF-8"))
        };
        let sparse = SparseCheckout::read(git, &git_dir).map_err(failed)?;
        Ok(Self {
            sparse,
            repository: text(&repository)?,
            origin: text(&origin)?,
            subdirectory: prefix.trim_end_matches('/').into(),
            base: base.into(),
        })
    }
}

/// The directories that git found for a task's directory.
struct FoundRepository<'a> {
    repository: &'a Path,
    git_dir: &'a Path,
    top: &'a Path,
}

impl FoundRepository<'_> {
    /// Returns true if the repository belongs to the work tree. Files in a directory could lead
    /// git to any other repository of the user, which the task would read and write then.
    fn knows_its_work_tree(&self, git: &Git) -> Result<bool, GitError> {
        if self.repository != self.git_dir {
            let named = read_small_file(&self.git_dir.join("gitdir")).unwrap_or_default();
            let named = self.git_dir.join(named.trim_end()).canonicalize().ok();
            return Ok(self.git_dir.parent() == Some(&self.repository.join("worktrees"))
                && named.is_some_and(|named| named == self.top.join(".git")));
        }
        if self.git_dir == self.top.join(".git") {
            return Ok(true);
        }
        // A submodule: git took the work tree from this setting.
        let setting = git.read_settings(self.git_dir, &["config", "--get", "core.worktree"])?;
        Ok(!setting.is_empty())
    }
}
