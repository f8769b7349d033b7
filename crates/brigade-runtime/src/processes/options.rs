//! The settings for processes: state directory, environment, shell, sandbox support.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use brigade_process::{ControlGroups, LandlockSupport, NamespaceSupport};

/// The default for the largest number of bytes stored of each output stream.
pub const DEFAULT_OUTPUT_CAP: u64 = 8 * 1024 * 1024;

/// Variables of the runtime that every process may see. All others may be secrets.
const DEFAULT_PASSED_VARIABLES: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TERM",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
];

/// The variables of the runtime's environment that processes see.
#[derive(Clone, Debug, Default)]
pub(crate) struct PassedVariables {
    /// Names, or prefixes with a `*` at the end.
    pub(crate) names: Vec<String>,
    /// Secrets, which only a whole name passes.
    pub(crate) withheld: Vec<String>,
}

/// The settings for processes: the directory of their output, and their environment.
///
/// ```
/// use brigade_runtime::{NewTask, ProcessOptions, Runtime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let state_dir = dir.path();
/// let runtime = Runtime::builder().processes(ProcessOptions::new(state_dir)).start().await?;
/// let session = runtime.session("today").await?;
/// let task = session.spawn(NewTask::shell("echo $DISH").env("DISH", "soup")).await?;
/// assert_eq!(task.result().await?.tail, "soup\n");
/// # runtime.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    pub(crate) state_dir: PathBuf,
    pub(crate) passed_variables: PassedVariables,
    /// The configured shell.
    shell: Option<PathBuf>,
    pub(crate) output_cap: u64,
    pub(crate) inherit_orphans: bool,
    pub(crate) landlock: LandlockSupport,
    pub(crate) namespaces: Option<NamespaceSupport>,
    pub(crate) control_groups: Option<ControlGroups>,
}

impl ProcessOptions {
    /// Creates options with this state directory, for output, exit codes and the shim's binary. Two
    /// runtimes must not share it.
    pub fn new(state_dir: impl AsRef<Path>) -> Self {
        Self {
            state_dir: state_dir.as_ref().to_owned(),
            passed_variables: PassedVariables {
                names: DEFAULT_PASSED_VARIABLES.map(str::to_owned).to_vec(),
                withheld: Vec::new(),
            },
            shell: None,
            output_cap: DEFAULT_OUTPUT_CAP,
            inherit_orphans: false,
            landlock: LandlockSupport::detect(),
            namespaces: None,
            control_groups: None,
        }
    }

    /// Lets processes see this variable of the runtime's environment too. A `*` at the end matches
    /// anything.
    #[must_use]
    pub fn pass_env(mut self, name: &str) -> Self {
        self.passed_variables.names.push(name.to_owned());
        self
    }

    /// Withholds this variable from processes unless its whole name is passed: a `*` does not match
    /// it. For keys.
    #[must_use]
    pub fn withhold_env(mut self, name: &str) -> Self {
        self.passed_variables.withheld.push(name.to_owned());
        self
    }

    /// Sets the shell that reads command lines, with `-c`. The default is bash if it is installed,
    /// else `/bin/sh`. Each task records the shell that it was started with.
    #[must_use]
    pub fn shell(mut self, shell: impl AsRef<Path>) -> Self {
        self.shell = Some(shell.as_ref().to_owned());
        self
    }

    /// Returns the shell for a task that is started now.
    pub(crate) fn default_shell(&self) -> &Path {
        static DEFAULT: OnceLock<PathBuf> = OnceLock::new();
        let default =
            || DEFAULT.get_or_init(|| find_bash().unwrap_or_else(|| FALLBACK_SHELL.into()));
        self.shell.as_deref().unwrap_or_else(|| default().as_path())
    }

    /// Returns the shell of a task that was stored before shells were recorded.
    pub(crate) fn unrecorded_shell(&self) -> &Path {
        self.shell.as_deref().unwrap_or(Path::new(FALLBACK_SHELL))
    }

    /// Sets the largest number of bytes stored of each output stream of a process.
    #[must_use]
    pub fn output_cap(mut self, bytes: u64) -> Self {
        self.output_cap = bytes;
        self
    }

    /// Sets the Landlock support to assume instead of the kernel's, to test with less.
    #[must_use]
    pub fn landlock(mut self, landlock: LandlockSupport) -> Self {
        self.landlock = landlock;
        self
    }

    /// Sets the namespaces to assume instead of those that a shim can create, to test with fewer.
    #[must_use]
    pub fn namespaces(mut self, namespaces: NamespaceSupport) -> Self {
        self.namespaces = Some(namespaces);
        self
    }

    /// Gives each process a control group of its own, so that it can be ended and limited as a
    /// whole.
    #[must_use]
    pub fn control_groups(mut self, groups: Option<ControlGroups>) -> Self {
        self.control_groups = groups;
        self
    }

    /// Makes this process, instead of init, the parent of orphaned descendants, and reaps all its
    /// children. Only for a program that starts no children of its own.
    #[must_use]
    pub fn inherit_orphans(mut self) -> Self {
        self.inherit_orphans = true;
        self
    }
}

const FALLBACK_SHELL: &str = "/bin/sh";
/// Directories that are searched for bash before the search path of this process.
const BASH_DIRS: [&str; 3] = ["/bin", "/usr/bin", "/usr/local/bin"];

/// Returns the absolute path of the first bash that can be executed.
fn find_bash() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<PathBuf> =
        std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect();
    let usual = BASH_DIRS.iter().map(PathBuf::from);
    usual.chain(in_path).map(|dir| dir.join("bash")).find(|bash| is_executable(bash))
}

fn is_executable(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
