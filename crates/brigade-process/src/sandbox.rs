//! Prepares a sandbox for its shim: Landlock rulesets, seccomp filter, namespaces and mounts.
//!
//! | part | denies | available |
//! |---|---|---|
//! | Landlock | files, signals and abstract sockets outside | always, or nothing is started |
//! | seccomp | changes to other processes by pid, `io_uring`, kinds of sockets | always |
//! | mount | modes, owners and times of files; local sockets; the state directory | usually |
//! | network | all networks, if none is requested | usually; the filter denies them too |
//!
//! "Usually" means that the user can create namespaces.
//!
//! [`SandboxPlan::parts`] lists the parts of a process. The shim writes them into its record.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::landlock_rules::{LandlockSupport, LayerAccess, SYSTEM_PATHS, SandboxError};
use crate::seccomp::{self, NetworkAccess};
use crate::shim::sandbox::{
    BindAccess, MountLayer, MountStep, SandboxNamespaces, SandboxParts, ShimSandbox,
};

/// The one directory of the state directory that a sandboxed process sees. It holds the daemon's
/// socket.
pub const SOCKET_DIR: &str = "socket";

/// The namespaces that a user can create on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceSupport {
    pub mount: NamespaceStatus,
    pub network: NamespaceStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceStatus {
    Available,
    /// Refused by the kernel with this error number.
    Refused(i32),
    /// Not tried, or not supported by this system.
    Unknown,
}

/// The contents of a sandbox.
#[derive(Clone, Copy, Debug)]
pub struct SandboxScope<'a> {
    /// The layers, the outermost first. All of them apply.
    pub layers: &'a [LayerAccess<'a>],
    /// A private directory of the process. With a mount namespace it is also its `/tmp`.
    pub scratch: &'a Path,
    /// The state directory, hidden except for the scratch directory and [`SOCKET_DIR`].
    pub state_dir: &'a Path,
}

/// The parts of a sandbox that a shim receives.
#[derive(Debug)]
pub struct SandboxPlan {
    rulesets: Vec<OwnedFd>,
    shim_sandbox: ShimSandbox,
}

impl NamespaceSupport {
    pub const UNKNOWN: Self =
        Self { mount: NamespaceStatus::Unknown, network: NamespaceStatus::Unknown };

    /// Parses the output of a shim with `--probe-namespaces`.
    pub(crate) fn parse(printed: &str) -> Self {
        let mut numbers = printed.lines().map(|line| line.trim().parse::<i32>());
        let mut next = || match numbers.next() {
            Some(Ok(0)) => NamespaceStatus::Available,
            Some(Ok(errno)) => NamespaceStatus::Refused(errno),
            Some(Err(_)) | None => NamespaceStatus::Unknown,
        };
        Self { mount: next(), network: next() }
    }
}

impl NamespaceStatus {
    pub fn is_available(self) -> bool {
        self == Self::Available
    }
}

impl SandboxPlan {
    /// Builds the plan. Opens files, so it may block. After an error, the process must not be
    /// started.
    pub fn build(
        landlock: LandlockSupport,
        namespaces: NamespaceSupport,
        scope: &SandboxScope<'_>,
    ) -> Result<Self, SandboxError> {
        let rulesets = landlock.build_rulesets(scope.layers, scope.scratch)?;
        let network = scope.layers.iter().map(|layer| layer.network).max().unwrap_or_default();
        let mount = namespaces.mount.is_available();
        let without_network = network == NetworkAccess::None && namespaces.network.is_available();
        let layers = match mount {
            true => mount_layers(scope),
            false => Vec::new(),
        };
        let shim_sandbox = ShimSandbox {
            filter: seccomp::compile(network)?,
            namespaces: SandboxNamespaces { mount, network: without_network },
            layers,
        };
        Ok(Self { rulesets, shim_sandbox })
    }

    pub fn parts(&self) -> SandboxParts {
        let SandboxNamespaces { mount, network } = self.shim_sandbox.namespaces;
        SandboxParts { landlock: true, seccomp: true, mount, network, ..SandboxParts::default() }
    }

    pub(crate) fn layer_count(&self) -> u32 {
        self.rulesets.len() as u32
    }

    /// Returns the descriptors for the shim, after its three streams: the rulesets, and a file with
    /// the other parts.
    pub(crate) fn descriptors(&self) -> std::io::Result<Vec<OwnedFd>> {
        let mut descriptors =
            self.rulesets.iter().map(OwnedFd::try_clone).collect::<Result<Vec<_>, _>>()?;
        descriptors.push(memory_file(&self.shim_sandbox.encode())?);
        Ok(descriptors)
    }
}

#[cfg(full_linux)]
fn memory_file(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::io::Write;
    let mut file = std::fs::File::from(memfd_create("brigade-sandbox", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}

#[cfg(not(full_linux))]
fn memory_file(_: &[u8]) -> std::io::Result<OwnedFd> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Directories in which programs create shared sockets and files.
struct HiddenDirs {
    temporary: Option<PathBuf>,
    runtime: Vec<PathBuf>,
    memory: Option<PathBuf>,
    state_dir: PathBuf,
}

impl HiddenDirs {
    fn new(state: &Path) -> Self {
        let real = |path: &Path| path.canonicalize().ok().filter(|path| path.is_dir());
        let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let runtime = [Some("/run".into()), named].into_iter().flatten();
        let runtime = runtime.filter_map(|path: PathBuf| real(&path)).collect();
        Self {
            temporary: real(Path::new("/tmp")),
            runtime,
            memory: real(Path::new("/dev/shm")),
            state_dir: state.canonicalize().unwrap_or_else(|_| state.to_owned()),
        }
    }

    fn hides(&self, path: &Path) -> bool {
        let runtime = self.runtime.iter().chain(&self.temporary).chain(&self.memory);
        runtime.chain([&self.state_dir]).any(|hidden| path.starts_with(hidden))
    }
}

fn mount_layers(scope: &SandboxScope<'_>) -> Vec<MountLayer> {
    let hidden = HiddenDirs::new(scope.state_dir);
    let layer = |(depth, layer)| MountLayer { steps: mount_steps(depth, layer, scope, &hidden) };
    scope.layers.iter().enumerate().map(layer).collect()
}

/// Returns the mount steps of one layer: hidden directories first, then the visible parts of the
/// system and of the state directory, and the paths that the layer grants.
fn mount_steps(
    depth: usize,
    layer: &LayerAccess<'_>,
    scope: &SandboxScope<'_>,
    hidden: &HiddenDirs,
) -> Vec<MountStep> {
    let bind = |path: &Path, access| MountStep::Bind {
        source: path.to_owned(),
        at: path.to_owned(),
        access,
    };
    let mut steps = Vec::new();
    if let Some(at) = hidden.temporary.clone() {
        let source = scope.scratch.to_owned();
        steps.push(MountStep::Bind { source, at, access: BindAccess::Write });
    }
    steps.extend(hidden.runtime.iter().cloned().map(MountStep::Hide));
    steps.push(MountStep::Hide(hidden.state_dir.clone()));
    if let Some(memory) = &hidden.memory {
        steps.push(match depth {
            0 => MountStep::Memory(memory.clone()),
            _ => bind(memory, BindAccess::Write),
        });
    }
    for path in SYSTEM_PATHS.map(Path::new).into_iter().filter(|path| hidden.hides(path)) {
        match path.read_link() {
            Ok(target) => steps.push(MountStep::Link { at: path.to_owned(), target }),
            Err(_) if path.exists() => steps.push(bind(path, BindAccess::Read)),
            Err(_) => {}
        }
    }
    let socket = hidden.state_dir.join(SOCKET_DIR);
    if socket.is_dir() {
        steps.push(bind(&socket, BindAccess::Read));
    }
    steps.extend(granted_paths(layer, hidden).map(|(path, access)| bind(path, access)));
    steps.push(bind(scope.scratch, BindAccess::Write));
    steps
}

/// Returns the granted paths of a layer, parents before children. Paths outside hidden directories
/// are readable anyway.
fn granted_paths<'a>(
    layer: &'a LayerAccess<'_>,
    hidden: &HiddenDirs,
) -> impl Iterator<Item = (&'a Path, BindAccess)> + use<'a> {
    let writable = || layer.write.iter().chain(&layer.write_plain);
    let is_writable = |path: &Path| writable().any(|parent| path.starts_with(parent));
    let read = layer.read.iter().copied();
    let read = read.filter(|path| hidden.hides(path) && !is_writable(path));
    let mut grants: Vec<(&Path, BindAccess)> = read.map(|path| (path, BindAccess::Read)).collect();
    grants.extend(writable().map(|path| (*path, BindAccess::Write)));
    grants.sort_by_key(|(path, _)| *path);
    grants.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_output_is_parsed() {
        let available = NamespaceStatus::Available;
        let table = [
            ("0\n0\n", available, available),
            ("1\n0\n", NamespaceStatus::Refused(1), available),
            ("", NamespaceStatus::Unknown, NamespaceStatus::Unknown),
            ("brigade\n", NamespaceStatus::Unknown, NamespaceStatus::Unknown),
        ];
        for (printed, mount, network) in table {
            assert_eq!(NamespaceSupport::parse(printed), NamespaceSupport { mount, network });
        }
    }

    #[test]
    fn parents_are_mounted_before_their_children() {
        let [ws, deep, tool] = ["/tmp/ws", "/tmp/ws/deep", "/tmp/tool"].map(Path::new);
        let layer = LayerAccess {
            read: vec![tool, deep, Path::new("/opt/data")],
            write: vec![deep, ws],
            ..LayerAccess::default()
        };
        let hidden = HiddenDirs {
            temporary: Some("/tmp".into()),
            runtime: vec!["/run".into()],
            memory: None,
            state_dir: "/state".into(),
        };
        let found: Vec<_> = granted_paths(&layer, &hidden).collect();
        let read = BindAccess::Read;
        let write = BindAccess::Write;
        assert_eq!(found, [(tool, read), (ws, write), (deep, write)]);
    }
}
