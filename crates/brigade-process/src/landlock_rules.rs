//! File and network access of a process, as Landlock rulesets.
//!
//! The runtime builds the rulesets and passes them to the shim, whose child applies them before it
//! executes anything. A ruleset lists the allowed access. The kernel denies everything else to the
//! process and all its descendants. Several rulesets apply together, and each only removes access.
//! So an inner sandbox is never weaker than an outer one, and Brigade compares no paths.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::seccomp::{FilterError, NetworkAccess};

/// The Landlock support of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LandlockSupport {
    /// The kernel or the system has no Landlock.
    Missing,
    /// The kernel has Landlock, but it is not enabled.
    Disabled,
    Version(u32),
}

/// The access of one sandbox layer, in addition to the system paths. A path is a file, or a
/// directory with its contents, and contains no symbolic link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerAccess<'a> {
    /// Paths to read and execute.
    pub read: Vec<&'a Path>,
    /// Paths to read, execute, write, create and remove.
    pub write: Vec<&'a Path>,
    /// Paths to write like those of `write`, without links, pipes and sockets: other programs that
    /// read these directories would follow them or wait for them.
    pub write_plain: Vec<&'a Path>,
    pub network: NetworkAccess,
}

/// A reason why a process cannot be sandboxed. It is not started then.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error(
        "no sandbox is possible: this kernel has no Landlock: Linux {NEEDED_LINUX} or newer is \
         needed, built with it; run it without a sandbox, or in a container"
    )]
    Missing,
    #[error(
        "no sandbox is possible: Landlock is not switched on in this kernel: add `landlock` to the \
         `lsm=` list of the kernel's command line, or run it without a sandbox"
    )]
    Disabled,
    #[error(
        "no sandbox is possible: this kernel's Landlock (version {0}) is too old to deny \
         truncation: use Linux {NEEDED_LINUX} or newer, or run it without a sandbox"
    )]
    TooOld(u32),
    #[error("no sandbox is possible: {0}; run it without a sandbox, or in a container")]
    Filter(#[from] FilterError),
    #[error("no sandbox is possible: {} cannot be opened: {error}", path.display())]
    Path { path: PathBuf, error: io::Error },
    #[error("no sandbox is possible: {0}")]
    Refused(String),
}

/// The first version that restricts truncation.
const MIN_VERSION: u32 = 3;
const NEEDED_LINUX: &str = "6.2";
/// The first version with rules for TCP.
const TCP_RULES_VERSION: u32 = 4;
/// The first version that restricts signals and abstract sockets.
const SCOPES_VERSION: u32 = 6;

/// Paths that a shell and system programs need. Missing ones are skipped.
pub const SYSTEM_PATHS: [&str; 17] = [
    "/bin",
    "/sbin",
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/run/current-system",
    "/etc",
    // The usual target of `/etc/resolv.conf`.
    "/run/systemd/resolve",
    // The kernel shows sandboxed processes only public facts about processes outside.
    "/proc",
    // The number of processors and the amount of memory.
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
];

/// Devices that give no access to anything outside.
pub const DEVICE_PATHS: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

impl LandlockSupport {
    /// Detects the support of the running kernel.
    pub fn detect() -> Self {
        #[cfg(full_linux)]
        return linux::version();
        #[cfg(not(full_linux))]
        Self::Missing
    }

    /// Returns true if Landlock denies signals to processes outside and abstract sockets.
    pub fn has_scopes(self) -> bool {
        matches!(self, Self::Version(version) if version >= SCOPES_VERSION)
    }

    pub fn has_tcp_rules(self) -> bool {
        matches!(self, Self::Version(version) if version >= TCP_RULES_VERSION)
    }

    /// Fails if a process cannot be sandboxed.
    pub fn check(self) -> Result<(), SandboxError> {
        match self {
            Self::Missing => Err(SandboxError::Missing),
            Self::Disabled => Err(SandboxError::Disabled),
            Self::Version(version) if version < MIN_VERSION => Err(SandboxError::TooOld(version)),
            Self::Version(_) => Ok(()),
        }
    }

    /// Builds one ruleset for each layer. `scratch` is the private, writable directory of the
    /// process. Opens files, so it may block.
    pub fn build_rulesets(
        self,
        layers: &[LayerAccess<'_>],
        scratch: &Path,
    ) -> Result<Vec<OwnedFd>, SandboxError> {
        if layers.is_empty() {
            return Ok(Vec::new());
        }
        self.check()?;
        #[cfg(full_linux)]
        {
            let has_tcp_rules = self.has_tcp_rules();
            layers.iter().map(|layer| linux::ruleset(layer, scratch, has_tcp_rules)).collect()
        }
        #[cfg(not(full_linux))]
        {
            let _ = scratch;
            Err(SandboxError::Missing)
        }
    }
}

#[cfg(full_linux)]
#[expect(unsafe_code, reason = "the version query is a bare system call")]
mod linux {
    use landlock::{
        ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
        RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
    };
    use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

    use super::{
        DEVICE_PATHS, LandlockSupport, LayerAccess, NetworkAccess, OwnedFd, Path, SYSTEM_PATHS,
        SandboxError, io,
    };

    /// The version whose file access is denied unless a rule allows it. Rights of later versions
    /// are untested, so they are not denied.
    const FILES: ABI = ABI::V5;

    pub(super) fn version() -> LandlockSupport {
        const VERSION: libc::c_uint = 1;
        let none = std::ptr::null::<libc::c_void>();
        // SAFETY: with this flag the call reads and creates nothing, and returns a number.
        let version =
            unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, VERSION) };
        match u32::try_from(version) {
            Ok(version) => LandlockSupport::Version(version),
            Err(_) => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EOPNOTSUPP) => LandlockSupport::Disabled,
                _ => LandlockSupport::Missing,
            },
        }
    }

    /// Builds one ruleset. Its TCP rules are additional: the seccomp filter denies TCP too.
    pub(super) fn ruleset(
        layer: &LayerAccess<'_>,
        scratch: &Path,
        has_tcp_rules: bool,
    ) -> Result<OwnedFd, SandboxError> {
        let denies_tcp = has_tcp_rules && layer.network != NetworkAccess::All;
        let mut ruleset = empty_ruleset(denies_tcp).map_err(ruleset_error)?;
        for path in SYSTEM_PATHS.map(Path::new).iter().filter(|path| path.exists()) {
            ruleset = allow_path(ruleset, path, SymlinkPolicy::Follow, system_access(path))?;
        }
        for path in DEVICE_PATHS.map(Path::new).iter().filter(|path| path.exists()) {
            ruleset = allow_path(ruleset, path, SymlinkPolicy::Follow, device_access())?;
        }
        for path in &layer.read {
            ruleset = allow_path(ruleset, path, SymlinkPolicy::Refuse, read_access())?;
        }
        for path in layer.write.iter().chain([&scratch]) {
            ruleset = allow_path(ruleset, path, SymlinkPolicy::Refuse, write_access())?;
        }
        for path in &layer.write_plain {
            ruleset = allow_path(ruleset, path, SymlinkPolicy::Refuse, plain_access())?;
        }
        let ruleset: Option<OwnedFd> = ruleset.into();
        ruleset.ok_or(SandboxError::Missing)
    }

    fn empty_ruleset(denies_tcp: bool) -> Result<RulesetCreated, RulesetError> {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(ABI::V3))?;
        if denies_tcp {
            ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4))?;
        }
        ruleset
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(FILES))?
            .scope(Scope::from_all(ABI::V6))?
            .create()
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum SymlinkPolicy {
        /// For paths that only the system's owner changes.
        Follow,
        /// For paths in which a sandboxed process may have created a link.
        Refuse,
    }

    fn allow_path(
        ruleset: RulesetCreated,
        path: &Path,
        links: SymlinkPolicy,
        access: BitFlags<AccessFs>,
    ) -> Result<RulesetCreated, SandboxError> {
        let unusable = |error| SandboxError::Path { path: path.to_owned(), error };
        let resolve = match links {
            SymlinkPolicy::Follow => ResolveFlags::empty(),
            SymlinkPolicy::Refuse => ResolveFlags::NO_SYMLINKS,
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = openat2(CWD, path, flags, Mode::empty(), resolve);
        let opened = opened.map_err(|error| unusable(open_error(error)))?;
        let stat = fstat(&opened).map_err(|error| unusable(error.into()))?;
        let access = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => access,
            _ => access & AccessFs::from_file(FILES),
        };
        ruleset.add_rule(PathBeneath::new(opened, access)).map_err(ruleset_error)
    }

    fn open_error(error: rustix::io::Errno) -> io::Error {
        match error {
            rustix::io::Errno::LOOP => {
                io::Error::other("it has become a symbolic link since the request")
            }
            error => error.into(),
        }
    }

    fn read_access() -> BitFlags<AccessFs> {
        AccessFs::from_read(FILES)
    }

    /// Excludes devices: a process that can create one could access the whole disk.
    fn write_access() -> BitFlags<AccessFs> {
        AccessFs::from_all(FILES) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
    }

    /// Excludes links, pipes and sockets. Moves between directories are excluded too: a directory
    /// from elsewhere could contain them.
    fn plain_access() -> BitFlags<AccessFs> {
        let special = AccessFs::MakeSym | AccessFs::MakeFifo | AccessFs::MakeSock;
        write_access() & !(special | AccessFs::Refer)
    }

    fn system_access(path: &Path) -> BitFlags<AccessFs> {
        match path.starts_with("/proc") || path.starts_with("/sys") {
            true => AccessFs::ReadFile | AccessFs::ReadDir,
            false => read_access(),
        }
    }

    fn device_access() -> BitFlags<AccessFs> {
        AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
    }

    fn ruleset_error(error: RulesetError) -> SandboxError {
        SandboxError::Refused(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(landlock: LandlockSupport, layer: LayerAccess<'_>) -> String {
        landlock.build_rulesets(&[layer], Path::new("/tmp")).unwrap_err().to_string()
    }

    #[test]
    fn missing_kernel_support_is_reported_with_a_remedy() {
        let tables = [
            (LandlockSupport::Missing, "no Landlock", "Linux 6.2"),
            (LandlockSupport::Disabled, "not switched on", "lsm="),
            (LandlockSupport::Version(2), "version 2", "Linux 6.2"),
        ];
        for (landlock, problem, remedy) in tables {
            let text = refusal(landlock, LayerAccess::default());
            assert!(text.contains(problem) && text.contains(remedy), "{text}");
        }
    }

    #[test]
    fn no_layers_need_no_landlock() {
        assert!(
            LandlockSupport::Missing.build_rulesets(&[], Path::new("/tmp")).unwrap().is_empty()
        );
    }
}
