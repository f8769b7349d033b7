//! Runs git on a repository without the configuration of that repository.
//!
//! A view is a git directory of Brigade's own: its configuration is Brigade's, and links lead to
//! the refs of the repository. So git finds no hook, filter, include or extension that the
//! repository names, even if the repository changes while git runs.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use brigade_model::worktree::Worktree;
use brigade_process::remove_tree::remove_tree;

use super::foreign_files::{check_parts, read_small_file};
use super::git::{Git, GitError, GitPlace, Setting};

/// Files of a repository that a view links to.
const LINKED: [&str; 6] = ["refs", "packed-refs", "logs", "worktrees", "info", "shallow"];

/// The settings that a view takes over. Those of `core` say how files look in a work tree.
const TAKEN_OVER: &str = "^(core\\.(autocrlf|eol|filemode|symlinks|ignorecase|excludesfile\
    |attributesfile)\
    |extensions\\.(objectformat|refstorage))$";

/// Makes the views of a runtime, in a directory that no task reaches.
#[derive(Debug)]
pub(crate) struct RepositoryViews {
    root: PathBuf,
    git: Git,
    made: AtomicU64,
}

impl RepositoryViews {
    /// Removes the views of an earlier runtime. No other runtime may use the directory.
    pub(crate) fn new(root: PathBuf, git: Git) -> io::Result<Self> {
        remove_tree(&root)?;
        Ok(Self { root, git, made: AtomicU64::new(0) })
    }

    pub(crate) fn git(&self) -> &Git {
        &self.git
    }

    /// Makes a view of a repository.
    pub(crate) fn open(&self, repository: &Path) -> Result<RepositoryView, GitError> {
        check_parts(repository).map_err(GitError::Failed)?;
        let taken_over = TakenOver::read(&self.git, repository)?;
        let serial = self.made.fetch_add(1, Ordering::Relaxed);
        let view = RepositoryView {
            git: self.git.clone(),
            folder: self.root.join(serial.to_string()),
            repository: repository.to_owned(),
            settings: taken_over.settings,
        };
        view.fill(&taken_over.object_format).map_err(GitError::NotRun)?;
        Ok(view)
    }
}

/// A repository as git sees it with Brigade's configuration. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct RepositoryView {
    git: Git,
    folder: PathBuf,
    repository: PathBuf,
    settings: Vec<Setting>,
}

impl RepositoryView {
    fn fill(&self, object_format: &str) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let version = u8::from(object_format != "sha1");
        let mut config = format!("[core]\n\trepositoryformatversion = {version}\n\tbare = false\n");
        if version > 0 {
            config.push_str(&format!("[extensions]\n\tobjectFormat = {object_format}\n"));
        }
        fs::write(self.folder.join("config"), config)?;
        let head = read_small_file(&self.repository.join("HEAD"));
        let head = head.unwrap_or_else(|_| "ref: refs/heads/main\n".to_owned());
        fs::write(self.folder.join("HEAD"), head)?;
        // Git makes the files in them, but not the directories to which links lead.
        for name in ["logs", "worktrees"] {
            fs::create_dir_all(self.repository.join(name))?;
        }
        for name in LINKED {
            symlink(self.repository.join(name), self.folder.join(name))?;
        }
        Ok(())
    }

    /// Adds settings for later commands.
    pub(crate) fn add_settings(&mut self, settings: impl IntoIterator<Item = Setting>) {
        self.settings.extend(settings);
    }

    /// Runs a command that needs no work tree. Returns its stdout.
    pub(crate) fn read(&self, args: &[&str]) -> Result<Vec<u8>, GitError> {
        self.git.read(self.place(), &self.settings, args)
    }

    /// Runs a command that needs no work tree. Returns its one line of stdout.
    pub(crate) fn read_line(&self, args: &[&str]) -> Result<String, GitError> {
        self.git.read_line(self.place(), &self.settings, args)
    }

    /// Runs a command that exits with 1 if it finds nothing. Returns its stdout.
    pub(crate) fn search(&self, args: &[&str]) -> Result<Vec<u8>, GitError> {
        self.git.search(self.place(), &self.settings, args)
    }

    /// Runs a command that reads a worktree. Returns its stdout.
    pub(crate) fn read_worktree(
        &self,
        worktree: &Worktree,
        args: &[&str],
    ) -> Result<Vec<u8>, GitError> {
        self.git.read(self.place_in(worktree), &self.settings, args)
    }

    /// Runs a command that writes the files of a worktree.
    pub(crate) fn write_worktree(
        &self,
        worktree: &Worktree,
        args: &[&str],
    ) -> Result<(), GitError> {
        self.git.write(self.place_in(worktree), &self.settings, args)
    }

    fn place(&self) -> GitPlace<'_> {
        GitPlace::View { folder: &self.folder, repository: &self.repository }
    }

    fn place_in<'a>(&'a self, worktree: &'a Worktree) -> GitPlace<'a> {
        GitPlace::Worktree {
            folder: &self.folder,
            repository: &self.repository,
            git_dir: Path::new(&*worktree.git_dir),
            path: Path::new(&*worktree.path),
        }
    }
}

impl Drop for RepositoryView {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.folder) {
            tracing::warn!(%error, folder = %self.folder.display(), "a view was not removed");
        }
    }
}

/// Settings of a repository and its user that are valid in a view. None of them names a program.
#[derive(Debug, PartialEq, Eq)]
struct TakenOver {
    object_format: String,
    settings: Vec<Setting>,
}

impl TakenOver {
    fn read(git: &Git, repository: &Path) -> Result<Self, GitError> {
        let args = ["config", "--null", "--get-regexp", TAKEN_OVER];
        let listed = git.read_settings(repository, &args)?;
        Self::parse(&String::from_utf8_lossy(&listed))
    }

    fn parse(listed: &str) -> Result<Self, GitError> {
        let mut taken_over = Self { object_format: "sha1".to_owned(), settings: Vec::new() };
        for setting in listed.split_terminator('\0') {
            // A setting without a value is true.
            let (name, value) = setting.split_once('\n').unwrap_or((setting, "true"));
            let is_word =
                !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric());
            match name {
                "extensions.objectformat" if is_word => taken_over.object_format = value.to_owned(),
                "extensions.refstorage" if value != "files" => {
                    let problem = format!("its refs are stored as {value:?}, not as files");
                    return Err(GitError::Failed(problem));
                }
                "core.excludesfile" | "core.attributesfile" => {
                    taken_over.settings.push(Setting::new(name, value))
                }
                _ if name.starts_with("core.") && is_word => {
                    taken_over.settings.push(Setting::new(name, value));
                }
                _ => {}
            }
        }
        Ok(taken_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_takes_over_plain_values_only() {
        let listed = "core.autocrlf\ninput\0core.filemode\0core.eol\n[x]\ny\0\
            core.excludesfile\n~/ignored\0core.attributesfile\n~/a b\0extensions.objectformat\nsha256\0";
        let taken_over = TakenOver::parse(listed).unwrap();
        assert_eq!(taken_over.object_format, "sha256");
        let expect = [
            Setting::new("core.autocrlf", "input"),
            Setting::new("core.filemode", "true"),
            Setting::new("core.excludesfile", "~/ignored"),
            Setting::new("core.attributesfile", "~/a b"),
        ];
        assert_eq!(taken_over.settings, expect);
        let refused = TakenOver::parse("extensions.refstorage\nreftable\0").unwrap_err();
        assert!(format!("{refused:?}").contains("reftable"), "{refused:?}");
    }
}
