//! What a command may reach, as rulesets of Landlock.
//!
//! Made here and handed to the shim, which has its child apply them before the command is executed. A
//! ruleset lists what is allowed; everything else is denied, to the command and to all that comes of
//! it, for good. Several of them hold together, each taking something away: so what is inside of
//! something confined is never less confined, whatever it asks for, and nobody has to compare paths.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::seccomp::{FilterError, NetworkAccess};

/// What the kernel has of Landlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LandlockSupport {
    /// Not in this kernel, or not on this system at all.
    Missing,
    /// In the kernel, and not switched on.
    Disabled,
    Version(u32),
}

/// What is allowed, beside what every command needs of the system. A path is a file, or a directory
/// with all that is in it; none of it may be a symbolic link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerAccess<'a> {
    /// Read and executed.
    pub read: Vec<&'a Path>,
    /// Read, executed, written, made and removed.
    pub write: Vec<&'a Path>,
    pub network: NetworkAccess,
}

/// Why a command cannot be confined as asked. It is not started then.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error(
        "it is to be confined, and this kernel has no Landlock: Linux {NEEDED_LINUX} or newer is \
         needed, built with it; run it without confinement, or in a container"
    )]
    Missing,
    #[error(
        "it is to be confined, and Landlock is not switched on in this kernel: add `landlock` to the \
         `lsm=` list of the kernel's command line; or run it without confinement"
    )]
    Disabled,
    #[error(
        "it is to be confined, and this kernel's Landlock (version {0}) is too old to keep a command \
         from truncating files: Linux {NEEDED_LINUX} or newer is needed; or run it without confinement"
    )]
    TooOld(u32),
    #[error("it is to be confined, and {0}; run it without confinement, or in a container")]
    Filter(#[from] FilterError),
    #[error("it is to be confined to {}, which cannot be opened: {error}", path.display())]
    Path { path: PathBuf, error: io::Error },
    #[error("it cannot be confined: {0}")]
    Refused(String),
}

/// The first that also guards against truncation.
const MIN_VERSION: u32 = 3;
const NEEDED_LINUX: &str = "6.2";
/// The first with rules for TCP.
const TCP_RULES_VERSION: u32 = 4;
/// The first that confines signals and abstract sockets too.
const SCOPES_VERSION: u32 = 6;

/// What a shell and the programs of the system need. Where it is not there it is left out.
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
    // What `/etc/resolv.conf` often is.
    "/run/systemd/resolve",
    // Of processes outside, the kernel shows those who are confined only what it shows everybody.
    "/proc",
    // How many processors there are, and how much memory.
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
];

/// Devices that are no way out.
pub const DEVICE_PATHS: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

impl LandlockSupport {
    /// Of the kernel that this runs on.
    pub fn detect() -> Self {
        #[cfg(full_linux)]
        return linux::version();
        #[cfg(not(full_linux))]
        Self::Missing
    }

    /// Whether a confined command is kept from sending signals outside and from abstract sockets.
    pub fn has_scopes(self) -> bool {
        matches!(self, Self::Version(version) if version >= SCOPES_VERSION)
    }

    pub fn has_tcp_rules(self) -> bool {
        matches!(self, Self::Version(version) if version >= TCP_RULES_VERSION)
    }

    /// Whether a command can be confined at all.
    pub fn check(self) -> Result<(), SandboxError> {
        match self {
            Self::Missing => Err(SandboxError::Missing),
            Self::Disabled => Err(SandboxError::Disabled),
            Self::Version(version) if version < MIN_VERSION => Err(SandboxError::TooOld(version)),
            Self::Version(_) => Ok(()),
        }
    }

    /// One ruleset for each layer. `scratch` is the command's own, in which it may also write. Files
    /// are opened here, so it may block.
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
#[expect(unsafe_code, reason = "asking for the version is a bare system call")]
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

    /// All that is denied unless a rule allows it. What later versions can deny is not asked for: it
    /// would be denied without anybody having tried what that means.
    const FILES: ABI = ABI::V5;

    pub(super) fn version() -> LandlockSupport {
        const VERSION: libc::c_uint = 1;
        let none = std::ptr::null::<libc::c_void>();
        // SAFETY: with this flag nothing is read and nothing made, a number is returned.
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

    /// The filter keeps from TCP as well, and without these rules.
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
        let made: Option<OwnedFd> = ruleset.into();
        made.ok_or(SandboxError::Missing)
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
        /// In places that only the system's owner changes.
        Follow,
        /// Where whoever is confined may have put one.
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
        let about = fstat(&opened).map_err(|error| unusable(error.into()))?;
        let access = match FileType::from_raw_mode(about.st_mode) {
            FileType::Directory => access,
            _ => access & AccessFs::from_file(FILES),
        };
        ruleset.add_rule(PathBeneath::new(opened, access)).map_err(ruleset_error)
    }

    fn open_error(error: rustix::io::Errno) -> io::Error {
        match error {
            rustix::io::Errno::LOOP => {
                io::Error::other("it has become a symbolic link since it was asked for")
            }
            error => error.into(),
        }
    }

    fn read_access() -> BitFlags<AccessFs> {
        AccessFs::from_read(FILES)
    }

    /// Devices cannot be made: whoever may make one could reach the disk below all paths.
    fn write_access() -> BitFlags<AccessFs> {
        AccessFs::from_all(FILES) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
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
    fn a_kernel_that_cannot_confine_is_told_of_with_what_to_do() {
        let tables = [
            (LandlockSupport::Missing, "no Landlock", "Linux 6.2"),
            (LandlockSupport::Disabled, "not switched on", "lsm="),
            (LandlockSupport::Version(2), "version 2", "Linux 6.2"),
        ];
        for (landlock, what, advice) in tables {
            let told = refusal(landlock, LayerAccess::default());
            assert!(told.contains(what) && told.contains(advice), "{told}");
        }
    }

    #[test]
    fn nothing_to_confine_needs_no_landlock() {
        assert!(
            LandlockSupport::Missing.build_rulesets(&[], Path::new("/tmp")).unwrap().is_empty()
        );
    }
}
