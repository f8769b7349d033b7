//! Runs git for the runtime. The repository is foreign data: nothing that it configures is executed.
//! Commands that could execute something run on a view of it (`repository_view`).

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brigade_model::refusal::Refusal;
use brigade_model::truncate::truncate_chars;
use brigade_process::helper_program::{HelperLimits, HelperOutput, run_helper};
use tokio_util::sync::CancellationToken;

/// The first version of git that reads no configuration but the given one (`GIT_CONFIG_GLOBAL`).
const VERSION_MIN: (u32, u32) = (2, 32);

/// The time limit of a command that reads, and of one that writes many files.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const WRITE_TIMEOUT: Duration = Duration::from_secs(600);
/// The most bytes read of an answer. A longer one is an error.
const ANSWER_MAX: u64 = 64 * 1024 * 1024;
/// The longest part of git's own text in a refusal.
const PROBLEM_CHARS: usize = 600;

/// Variables of this process that git may see, besides `PATH`: the user's own configuration.
const PASSED_VARIABLES: [&str; 5] = ["HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "TMPDIR"];

/// Settings that override every configuration. Hooks, file monitors and maintenance would execute
/// programs; the last two would hide files or enter other repositories.
const SETTINGS: [[&str; 2]; 7] = [
    ["core.hooksPath", "/dev/null"],
    ["core.fsmonitor", "false"],
    ["gc.auto", "0"],
    ["maintenance.auto", "false"],
    ["advice.graftFileDeprecated", "false"],
    ["status.showUntrackedFiles", "all"],
    ["submodule.recurse", "false"],
];

/// A failure of git.
#[derive(Debug)]
pub(crate) enum GitError {
    /// git is not installed.
    Missing,
    /// git has this version, which is too old.
    TooOld(String),
    /// git could not be run, or took too long.
    NotRun(io::Error),
    /// git ended with this text.
    Failed(String),
}

impl GitError {
    /// Returns true if a repository or its worktree causes the failure, and not this machine.
    pub(crate) fn is_of_repository(&self) -> bool {
        match self {
            Self::Missing | Self::TooOld(_) => false,
            Self::NotRun(error) => error.kind() == io::ErrorKind::TimedOut,
            Self::Failed(_) => true,
        }
    }

    pub(crate) fn to_refusal(&self, attempt: &str) -> Refusal {
        match self {
            Self::Missing => Refusal::unavailable(format!("{attempt}: git is not installed")),
            Self::TooOld(version) => Refusal::unavailable(format!(
                "{attempt}: git {version} is too old; install git 2.32 or newer"
            )),
            Self::NotRun(error) if error.kind() == io::ErrorKind::TimedOut => {
                Refusal::unavailable(format!("{attempt}: git took too long and was ended"))
            }
            Self::NotRun(error) => Refusal::unavailable(format!("{attempt}: {error}")),
            Self::Failed(problem) => Refusal::unavailable(format!("{attempt}: {problem}")),
        }
    }
}

/// A setting that overrides every configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    name: String,
    value: String,
}

impl Setting {
    pub(crate) fn new(name: &str, value: &str) -> Self {
        Self { name: name.to_owned(), value: value.to_owned() }
    }
}

/// The repository and work tree that a command uses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GitPlace<'a> {
    /// The repository that git finds from this directory, if its owner is the user. Its
    /// configuration is read: only for `rev-parse`, which executes nothing.
    Directory(&'a Path),
    /// The configuration of this git directory and of the user: only for `config`.
    Settings(&'a Path),
    /// A view of a repository, without any other configuration.
    View { folder: &'a Path, repository: &'a Path },
    /// A worktree with explicit directories: its own files cannot lead git to another repository.
    Worktree { folder: &'a Path, repository: &'a Path, git_dir: &'a Path, path: &'a Path },
}

impl GitPlace<'_> {
    fn directory(&self) -> &Path {
        match self {
            Self::Directory(path) | Self::Settings(path) => path,
            Self::View { folder, .. } => folder,
            Self::Worktree { path, .. } => path,
        }
    }
}

/// Runs git commands until it is cancelled.
#[derive(Clone, Debug)]
pub(crate) struct Git {
    pub(crate) shutdown_token: CancellationToken,
}

impl Git {
    /// Runs a command that reads. Returns its stdout.
    pub(crate) fn read(
        &self,
        place: GitPlace<'_>,
        settings: &[Setting],
        args: &[&str],
    ) -> Result<Vec<u8>, GitError> {
        succeed(self.run(GitCall { place, settings, args, timeout: READ_TIMEOUT })?)
    }

    /// Runs a command that reads, and returns its one line of stdout.
    pub(crate) fn read_line(
        &self,
        place: GitPlace<'_>,
        settings: &[Setting],
        args: &[&str],
    ) -> Result<String, GitError> {
        let line = String::from_utf8(self.read(place, settings, args)?);
        let line = line.map_err(|_| GitError::Failed("a name is not UTF-8".to_owned()))?;
        Ok(line.strip_suffix('\n').unwrap_or(&line).to_owned())
    }

    /// Runs a command that writes many files.
    pub(crate) fn write(
        &self,
        place: GitPlace<'_>,
        settings: &[Setting],
        args: &[&str],
    ) -> Result<(), GitError> {
        succeed(self.run(GitCall { place, settings, args, timeout: WRITE_TIMEOUT })?).map(|_| ())
    }

    /// Runs `git config` for the settings of a repository and its user. Returns nothing if none is
    /// found.
    pub(crate) fn read_settings(
        &self,
        repository: &Path,
        args: &[&str],
    ) -> Result<Vec<u8>, GitError> {
        self.search(GitPlace::Settings(repository), &[], args)
    }

    /// Runs a command that exits with 1 if it finds nothing. Returns its stdout.
    pub(crate) fn search(
        &self,
        place: GitPlace<'_>,
        settings: &[Setting],
        args: &[&str],
    ) -> Result<Vec<u8>, GitError> {
        let output = self.run(GitCall { place, settings, args, timeout: READ_TIMEOUT })?;
        if output.status.code() == Some(1) {
            return Ok(Vec::new());
        }
        succeed(output)
    }

    /// Fails if git is too old to keep the configuration of a repository away. A version that was
    /// new enough is not asked again.
    pub(crate) fn check_version(&self, directory: &Path) -> Result<(), GitError> {
        static IS_NEW_ENOUGH: AtomicBool = AtomicBool::new(false);
        if IS_NEW_ENOUGH.load(Ordering::Relaxed) {
            return Ok(());
        }
        check_version(&self.read_line(GitPlace::Directory(directory), &[], &["version"])?)?;
        IS_NEW_ENOUGH.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn run(&self, call: GitCall<'_>) -> Result<HelperOutput, GitError> {
        let mut command = Command::new("git");
        let directory = call.place.directory();
        command.env_clear().envs(base_environment(call.settings)).current_dir(directory);
        match call.place {
            GitPlace::Directory(_) => {}
            GitPlace::Settings(repository) => {
                command.env("GIT_DIR", repository);
            }
            GitPlace::View { folder, repository } => {
                command.env("GIT_DIR", folder).envs(own_configuration(repository));
            }
            GitPlace::Worktree { folder, repository, git_dir, path } => {
                command.env("GIT_DIR", git_dir).env("GIT_COMMON_DIR", folder);
                command.env("GIT_WORK_TREE", path).envs(own_configuration(repository));
            }
        }
        command.args(call.args);
        let is_cancelled = || self.shutdown_token.is_cancelled();
        let limits = HelperLimits {
            timeout: call.timeout,
            stdout_max: ANSWER_MAX,
            is_cancelled: &is_cancelled,
        };
        run_helper(&mut command, limits).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if directory.is_dir() => GitError::Missing,
            _ => GitError::NotRun(error),
        })
    }
}

/// One run of git.
#[derive(Clone, Copy)]
struct GitCall<'a> {
    place: GitPlace<'a>,
    settings: &'a [Setting],
    args: &'a [&'a str],
    timeout: Duration,
}

/// Returns the variables with which git reads no configuration but that of its git directory, which
/// is a view.
fn own_configuration(repository: &Path) -> [(&'static str, OsString); 3] {
    [
        ("GIT_CONFIG_GLOBAL", "/dev/null".into()),
        ("GIT_CONFIG_NOSYSTEM", "1".into()),
        ("GIT_OBJECT_DIRECTORY", repository.join("objects").into()),
    ]
}

/// Returns the whole environment of git, with settings that override every configuration file.
fn base_environment(more: &[Setting]) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = PASSED_VARIABLES
        .iter()
        .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)))
        .collect();
    let path = std::env::var_os("PATH").map(|path| absolute_entries(&path));
    env.extend(path.map(|path| ("PATH".into(), path)));
    let mut set = |name: String, value: &str| env.push((name.into(), value.into()));
    for (name, value) in [
        ("LC_ALL", "C"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        // A missing object is an error: fetching it would execute programs that the repository names.
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_ALLOW_PROTOCOL", "none"),
        ("GIT_PAGER", "cat"),
        ("GIT_EDITOR", "false"),
        ("GIT_ASKPASS", "false"),
    ] {
        set(name.to_owned(), value);
    }
    let fixed = SETTINGS.iter().map(|[name, value]| [*name, *value]);
    let more = more.iter().map(|setting| [setting.name.as_str(), setting.value.as_str()]);
    let mut count = 0;
    for [name, value] in fixed.chain(more) {
        set(format!("GIT_CONFIG_KEY_{count}"), name);
        set(format!("GIT_CONFIG_VALUE_{count}"), value);
        count += 1;
    }
    set("GIT_CONFIG_COUNT".to_owned(), &count.to_string());
    env
}

/// Returns a `PATH` without relative entries, which would be in the repository.
fn absolute_entries(path: &OsStr) -> OsString {
    let entries = std::env::split_paths(path).filter(|entry| entry.is_absolute());
    std::env::join_paths(entries).unwrap_or_default()
}

/// Checks the version that git prints, such as `git version 2.47.3`.
fn check_version(printed: &str) -> Result<(), GitError> {
    let version = printed.strip_prefix("git version ").unwrap_or(printed);
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let major = numbers.next().flatten();
    let minor = numbers.next().flatten();
    // A version that is no number is a build of somebody's own.
    match major.zip(minor) {
        Some(found) if found < VERSION_MIN => Err(GitError::TooOld(version.to_owned())),
        _ => Ok(()),
    }
}

fn succeed(output: HelperOutput) -> Result<Vec<u8>, GitError> {
    if output.is_truncated {
        return Err(GitError::Failed("the answer of git is too long".to_owned()));
    }
    if output.status.success() {
        return Ok(output.stdout);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let text = match text.trim() {
        "" => format!("git ended with {}", output.status),
        text => truncate_chars(text, PROBLEM_CHARS),
    };
    Err(GitError::Failed(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_of_git_are_refused_by_name() {
        for printed in
            ["git version 2.32.0", "git version 2.50.1 (Apple Git-155)", "git version 3.0"]
        {
            check_version(printed).unwrap();
        }
        for old in ["2.31.8", "2.30.2", "1.9.1"] {
            let refused = check_version(&format!("git version {old}")).unwrap_err();
            let refused = refused.to_refusal("no worktree can be made");
            assert!(refused.message.contains(&format!("git {old} is too old")), "{refused}");
            assert!(refused.message.contains("2.32"), "{refused}");
        }
    }

    #[test]
    fn git_finds_no_programs_in_the_repository() {
        assert_eq!(absolute_entries(OsStr::new(".:/usr/bin::bin:/bin:")), "/usr/bin:/bin");
        let names: Vec<OsString> =
            base_environment(&[]).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.iter().filter(|name| *name == "PATH").count(), 1);
    }
}
