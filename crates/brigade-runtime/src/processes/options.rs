//! What commands get, and where what they leave is kept.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use brigade_process::{ControlGroups, LandlockSupport, NamespaceSupport};

/// The most that is kept of each output stream, unless the task says otherwise.
pub const DEFAULT_OUTPUT_CAP: u64 = 8 * 1024 * 1024;

/// Variables of the runtime that every command may see. Everything else may be a secret.
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

/// The variables of the runtime's environment that commands see.
#[derive(Clone, Debug, Default)]
pub(crate) struct PassedVariables {
    /// Names, or their beginnings with a `*` at the end.
    pub(crate) names: Vec<String>,
    /// Secrets: only a whole name passes them.
    pub(crate) withheld: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct ProcessOptions {
    pub(crate) state_dir: PathBuf,
    pub(crate) passed_variables: PassedVariables,
    /// The one that is configured.
    shell: Option<PathBuf>,
    pub(crate) output_cap: u64,
    pub(crate) inherit_orphans: bool,
    pub(crate) landlock: LandlockSupport,
    pub(crate) namespaces: Option<NamespaceSupport>,
    pub(crate) control_groups: Option<ControlGroups>,
}

impl ProcessOptions {
    /// Output, exit codes and the shim itself are kept in this folder, which must not be shared
    /// with another runtime.
    pub fn new(folder: impl AsRef<Path>) -> Self {
        Self {
            state_dir: folder.as_ref().to_owned(),
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

    /// Lets commands see this variable of the runtime's environment too. A `*` at its end stands
    /// for anything.
    #[must_use]
    pub fn pass_env(mut self, name: &str) -> Self {
        self.passed_variables.names.push(name.to_owned());
        self
    }

    /// Keeps this variable from commands unless it is passed by its whole name: a `*` does not stand
    /// for it. For keys.
    #[must_use]
    pub fn withhold_env(mut self, name: &str) -> Self {
        self.passed_variables.withheld.push(name.to_owned());
        self
    }

    /// The shell that reads command lines, with `-c`. Without one it is bash where there is one, else
    /// `/bin/sh`. Each task records the shell that it was started with.
    #[must_use]
    pub fn shell(mut self, shell: impl AsRef<Path>) -> Self {
        self.shell = Some(shell.as_ref().to_owned());
        self
    }

    /// The shell for a task that is started now.
    pub(crate) fn default_shell(&self) -> &Path {
        static DEFAULT: OnceLock<PathBuf> = OnceLock::new();
        let default =
            || DEFAULT.get_or_init(|| find_bash().unwrap_or_else(|| FALLBACK_SHELL.into()));
        self.shell.as_deref().unwrap_or_else(|| default().as_path())
    }

    /// The shell of a task that was stored before shells were recorded.
    pub(crate) fn unrecorded_shell(&self) -> &Path {
        self.shell.as_deref().unwrap_or(Path::new(FALLBACK_SHELL))
    }

    /// The most that is kept of each output stream of a command.
    #[must_use]
    pub fn output_cap(mut self, bytes: u64) -> Self {
        self.output_cap = bytes;
        self
    }

    /// What the kernel is taken to have for confining commands, instead of what it has: to see what
    /// happens where it has less.
    #[must_use]
    pub fn landlock(mut self, landlock: LandlockSupport) -> Self {
        self.landlock = landlock;
        self
    }

    /// The namespaces that commands are taken to be able to have, instead of those that a shim can make:
    /// to see what holds where there are fewer.
    #[must_use]
    pub fn namespaces(mut self, namespaces: NamespaceSupport) -> Self {
        self.namespaces = Some(namespaces);
        self
    }

    /// Gives each command a control group of its own, to be ended and bounded as a whole.
    #[must_use]
    pub fn control_groups(mut self, groups: Option<ControlGroups>) -> Self {
        self.control_groups = groups;
        self
    }

    /// Makes this process the parent of whatever is orphaned below it, instead of init, and has it
    /// wait for all its children. Only for a program that starts no children of its own.
    #[must_use]
    pub fn inherit_orphans(mut self) -> Self {
        self.inherit_orphans = true;
        self
    }
}

const FALLBACK_SHELL: &str = "/bin/sh";
/// Directories that have bash where the search path of this process does not say so.
const BASH_DIRS: [&str; 3] = ["/bin", "/usr/bin", "/usr/local/bin"];

/// The first bash that can be executed, by an absolute path.
fn find_bash() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named: Vec<PathBuf> =
        std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect();
    let usual = BASH_DIRS.iter().map(PathBuf::from);
    usual.chain(named).map(|dir| dir.join("bash")).find(|bash| is_executable(bash))
}

fn is_executable(path: &Path) -> bool {
    let about = std::fs::metadata(path);
    about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}
