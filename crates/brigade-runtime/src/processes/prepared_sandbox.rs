//! What a command is kept to, made ready for its shim.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use brigade_model::sandbox::{NetworkPolicy, Sandbox, SandboxLayer, TcpPolicy};
use brigade_process::landlock_rules::SYSTEM_PATHS;
use brigade_process::{
    Companion, LayerAccess, NamespaceSupport, NetworkAccess, ProcessLimits, PtySize, SandboxPlan,
    SandboxScope,
};

use super::environment;
use super::execution_dirs::ExecutionDirs;
use super::options::ProcessOptions;

/// A terminal that everybody knows, where nobody says which one.
const TERM: &str = "xterm-256color";

#[derive(Debug, Default)]
pub(crate) struct PreparedSandbox {
    pub(crate) limits: ProcessLimits,
    pub(crate) terminal: Option<PtySize>,
    pub(crate) sandbox: Option<SandboxPlan>,
    /// Where a confined command keeps what it needs for a while.
    scratch: Option<PathBuf>,
}

/// What of the file system belongs to one execution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExecutionPaths<'a> {
    /// Its own directory.
    pub(crate) dir: &'a Path,
    /// The shell that it needs to read.
    pub(crate) shell: &'a Path,
}

impl PreparedSandbox {
    /// The error says why the command cannot be kept to it; it is not to be started then.
    pub(crate) fn prepare(
        options: &ProcessOptions,
        machine: &NamespaceProbe,
        enclosure: Option<&Sandbox>,
        paths: ExecutionPaths<'_>,
    ) -> Result<Self, String> {
        let resources = enclosure.map(|enclosure| enclosure.resources).unwrap_or_default();
        let is_bounded_together = create_control_group(options, resources.memory, paths.dir)?;
        let Some(enclosure) = enclosure else { return Ok(Self::default()) };
        let limits = ProcessLimits {
            memory: resources.memory.filter(|_| !is_bounded_together),
            cpu_seconds: resources.cpu_secs,
            open_files: resources.open_files,
        };
        let terminal =
            enclosure.terminal.map(|size| PtySize { rows: size.rows, columns: size.columns });
        let mut enclosed = Self { limits, terminal, ..Self::default() };
        if !enclosure.layers.is_empty() {
            enclosed.prepare_layers(options, machine, &enclosure.layers, paths)?;
        }
        Ok(enclosed)
    }

    fn prepare_layers(
        &mut self,
        options: &ProcessOptions,
        machine: &NamespaceProbe,
        confinement: &[SandboxLayer],
        own: ExecutionPaths<'_>,
    ) -> Result<(), String> {
        options.landlock.check().map_err(|error| error.to_string())?;
        check_state_dir_unreachable(&options.state_dir, confinement)?;
        let scratch = ExecutionDirs::create_scratch_dir(own.dir);
        let scratch =
            scratch.map_err(|error| format!("cannot make its scratch folder: {error}"))?;
        let shell = own.shell.canonicalize().ok();
        let layers: Vec<LayerAccess<'_>> = confinement
            .iter()
            .map(|one| LayerAccess {
                read: as_paths(&one.read).chain(shell.as_deref()).collect(),
                write: as_paths(&one.write).collect(),
                network: network_access(one),
            })
            .collect();
        let scope =
            SandboxScope { layers: &layers, scratch: &scratch, state_dir: &options.state_dir };
        let namespaces = options.namespaces.unwrap_or_else(|| machine.support());
        let plan = SandboxPlan::build(options.landlock, namespaces, &scope);
        self.sandbox = Some(plan.map_err(|error| error.to_string())?);
        self.scratch = Some(scratch);
        Ok(())
    }
}

/// Makes a control group for the command, where that can be. Returns whether it bounds the memory of all
/// its processes together; otherwise each is bounded by itself.
fn create_control_group(
    options: &ProcessOptions,
    memory: Option<u64>,
    dir: &Path,
) -> Result<bool, String> {
    let Some(groups) = &options.control_groups else { return Ok(false) };
    let memory = memory.filter(|_| groups.limits_memory());
    match groups.create_group(dir, memory) {
        Ok(()) => Ok(memory.is_some()),
        Err(error) if memory.is_some() => {
            Err(format!("a control group that bounds its memory cannot be made: {error}"))
        }
        Err(error) => {
            tracing::warn!(%error, "a command has no control group of its own");
            Ok(false)
        }
    }
}

/// What this machine can do for sandboxes, found out when it is needed first.
#[derive(Debug)]
pub(crate) struct NamespaceProbe {
    companion: Companion,
    namespaces: OnceLock<NamespaceSupport>,
}

impl NamespaceProbe {
    pub(crate) fn new(companion: Companion) -> Self {
        Self { companion, namespaces: OnceLock::new() }
    }

    /// May block for as long as a shim takes to try. Once they were to be had they are taken to be so:
    /// a command that cannot have them then fails. Where they were not, it is tried again.
    fn support(&self) -> NamespaceSupport {
        if let Some(known) = self.namespaces.get() {
            return *known;
        }
        let found = self.companion.probe_namespaces();
        match found.mount.is_available() && found.network.is_available() {
            true => *self.namespaces.get_or_init(|| found),
            false => found,
        }
    }
}

fn network_access(one: &SandboxLayer) -> NetworkAccess {
    match (one.network, one.tcp) {
        (NetworkPolicy::Denied, _) => NetworkAccess::None,
        (NetworkPolicy::Allowed, TcpPolicy::Denied) => NetworkAccess::NoTcp,
        (NetworkPolicy::Allowed, TcpPolicy::Allowed) => NetworkAccess::All,
    }
}

/// Adds what a command has to know of it to its environment.
pub(crate) fn extend_environment(enclosed: &PreparedSandbox, env: &mut Vec<(OsString, OsString)>) {
    if let Some(scratch) = &enclosed.scratch {
        environment::set_variable(env, "TMPDIR", scratch.into());
    }
    let is_known = env.iter().any(|(name, value)| name == "TERM" && value != "dumb");
    if enclosed.terminal.is_some() && !is_known {
        environment::set_variable(env, "TERM", TERM.into());
    }
}

fn as_paths(paths: &[std::sync::Arc<str>]) -> impl Iterator<Item = &Path> {
    paths.iter().map(|path| Path::new(&**path))
}

/// Who can reach the state folder can read what others do, and become anybody: no rule can take it
/// out of what is above it. A layer that does not reach it keeps it out of all the others.
fn check_state_dir_unreachable(folder: &Path, confinement: &[SandboxLayer]) -> Result<(), String> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    if let Some(system) = system_dir_containing(&folder) {
        return Err(format!(
            "it cannot be confined: Brigade's own state folder is {}, below {}, which every confined \
             command may read; keep the state elsewhere with --state or BRIGADE_STATE",
            folder.display(),
            system.display()
        ));
    }
    let touches = |path: &&Path| folder.starts_with(path) || path.starts_with(&folder);
    let reach = |one| -> Option<&Path> { layer_paths(one).find(touches) };
    let all: Option<Vec<&Path>> = confinement.iter().map(reach).collect();
    let Some(path) = all.and_then(|paths| paths.last().copied()) else { return Ok(()) };
    Err(format!(
        "it cannot be confined to {}: Brigade's own state folder is {}, which a confined command must \
         not reach; work in a narrower directory, or keep the state elsewhere with --state or \
         BRIGADE_STATE",
        path.display(),
        folder.display()
    ))
}

/// The directory of the system that the folder is in.
fn system_dir_containing(folder: &Path) -> Option<PathBuf> {
    let real = SYSTEM_PATHS.iter().filter_map(|path| Path::new(path).canonicalize().ok());
    real.into_iter().find(|path| folder.starts_with(path))
}

fn layer_paths(one: &SandboxLayer) -> impl Iterator<Item = &Path> {
    as_paths(&one.write).chain(as_paths(&one.read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_folder_in_a_directory_of_the_system_is_within_reach() {
        let confinement =
            SandboxLayer { write: vec!["/home/me".into()], ..SandboxLayer::default() };
        for folder in ["/usr/brigade", "/etc/brigade/state", "/opt/brigade", "/usr/lib/brigade"] {
            // Where there is no such directory, nothing is readable there.
            if !Path::new(folder).ancestors().skip(1).take(2).any(Path::exists) {
                continue;
            }
            let refused =
                check_state_dir_unreachable(Path::new(folder), std::slice::from_ref(&confinement));
            let told = refused.unwrap_err();
            assert!(told.contains(folder) && told.contains("--state"), "{told}");
        }
        assert_eq!(
            check_state_dir_unreachable(Path::new("/var/lib/brigade"), &[confinement]),
            Ok(())
        );
    }
}
