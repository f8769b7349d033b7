//! Prepares the sandbox of a process for its shim.

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

/// The terminal type of a process whose environment names none.
const TERM: &str = "xterm-256color";

#[derive(Debug, Default)]
pub(crate) struct PreparedSandbox {
    pub(crate) limits: ProcessLimits,
    pub(crate) terminal: Option<PtySize>,
    pub(crate) sandbox: Option<SandboxPlan>,
    /// The directory for temporary files of a sandboxed process.
    scratch: Option<PathBuf>,
}

/// The paths that belong to one execution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExecutionPaths<'a> {
    /// The directory of the execution.
    pub(crate) dir: &'a Path,
    /// The shell that it needs to read.
    pub(crate) shell: &'a Path,
}

impl PreparedSandbox {
    /// Prepares the sandbox. With an error, which says why that is not possible, the process must
    /// not start.
    pub(crate) fn prepare(
        options: &ProcessOptions,
        machine: &NamespaceProbe,
        sandbox: Option<&Sandbox>,
        paths: ExecutionPaths<'_>,
    ) -> Result<Self, String> {
        let resources = sandbox.map(|sandbox| sandbox.resources).unwrap_or_default();
        let group_limits_memory = create_control_group(options, resources.memory, paths.dir)?;
        let Some(sandbox) = sandbox else { return Ok(Self::default()) };
        let limits = ProcessLimits {
            memory: resources.memory.filter(|_| !group_limits_memory),
            cpu_seconds: resources.cpu_secs,
            open_files: resources.open_files,
        };
        let terminal =
            sandbox.terminal.map(|size| PtySize { rows: size.rows, columns: size.columns });
        let mut prepared = Self { limits, terminal, ..Self::default() };
        if !sandbox.layers.is_empty() {
            prepared.prepare_layers(options, machine, &sandbox.layers, paths)?;
        }
        Ok(prepared)
    }

    fn prepare_layers(
        &mut self,
        options: &ProcessOptions,
        machine: &NamespaceProbe,
        sandbox: &[SandboxLayer],
        own: ExecutionPaths<'_>,
    ) -> Result<(), String> {
        options.landlock.check().map_err(|error| error.to_string())?;
        check_state_dir_unreachable(&options.state_dir, sandbox)?;
        let scratch = ExecutionDirs::create_scratch_dir(own.dir);
        let scratch =
            scratch.map_err(|error| format!("cannot create its scratch directory: {error}"))?;
        let shell = own.shell.canonicalize().ok();
        let layers: Vec<LayerAccess<'_>> = sandbox
            .iter()
            .map(|layer| LayerAccess {
                read: as_paths(&layer.read).chain(shell.as_deref()).collect(),
                write: as_paths(&layer.write).collect(),
                write_plain: as_paths(&layer.write_plain).collect(),
                network: network_access(layer),
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

/// Creates a control group for the process, if possible. Returns true if the group limits the
/// memory of all its processes together. Otherwise each process has its own limit.
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
            Err(format!("cannot create a control group that limits its memory: {error}"))
        }
        Err(error) => {
            tracing::warn!(%error, "a process has no control group of its own");
            Ok(false)
        }
    }
}

/// The namespaces that this machine supports, probed on first use.
#[derive(Debug)]
pub(crate) struct NamespaceProbe {
    companion: Companion,
    namespaces: OnceLock<NamespaceSupport>,
}

impl NamespaceProbe {
    pub(crate) fn new(companion: Companion) -> Self {
        Self { companion, namespaces: OnceLock::new() }
    }

    /// Returns the supported namespaces. Blocks while a shim tries them. Full support is cached: a
    /// process that cannot have them later fails. Missing support is probed again.
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

fn network_access(layer: &SandboxLayer) -> NetworkAccess {
    match (layer.network, layer.tcp) {
        (NetworkPolicy::Denied, _) => NetworkAccess::None,
        (NetworkPolicy::Allowed, TcpPolicy::Denied) => NetworkAccess::NoTcp,
        (NetworkPolicy::Allowed, TcpPolicy::Allowed) => NetworkAccess::All,
    }
}

/// Adds the variables for the scratch directory and the terminal to the environment.
pub(crate) fn extend_environment(prepared: &PreparedSandbox, env: &mut Vec<(OsString, OsString)>) {
    if let Some(scratch) = &prepared.scratch {
        environment::set_variable(env, "TMPDIR", scratch.into());
    }
    let is_known = env.iter().any(|(name, value)| name == "TERM" && value != "dumb");
    if prepared.terminal.is_some() && !is_known {
        environment::set_variable(env, "TERM", TERM.into());
    }
}

fn as_paths(paths: &[std::sync::Arc<str>]) -> impl Iterator<Item = &Path> {
    paths.iter().map(|path| Path::new(&**path))
}

/// Refuses a sandbox that reaches the state directory. Whoever reaches it can read the data of
/// others and act as anybody, and no rule can exclude it from its parent directory. One layer that
/// does not reach it is enough.
fn check_state_dir_unreachable(state_dir: &Path, layers: &[SandboxLayer]) -> Result<(), String> {
    let state_dir = state_dir.canonicalize().unwrap_or_else(|_| state_dir.to_owned());
    if let Some(system) = system_dir_containing(&state_dir) {
        return Err(format!(
            "it cannot have a sandbox: Brigade's own state directory is {}, in {}, which every \
             sandboxed process may read; move the state with --state or BRIGADE_STATE",
            state_dir.display(),
            system.display()
        ));
    }
    let touches = |path: &&Path| {
        state_dir.starts_with(path)
            || path.starts_with(&state_dir) && !is_worktree(&state_dir, path)
    };
    let reach = |layer| -> Option<&Path> { layer_paths(layer).find(touches) };
    let reached: Option<Vec<&Path>> = layers.iter().map(reach).collect();
    let Some(path) = reached.and_then(|paths| paths.last().copied()) else { return Ok(()) };
    Err(format!(
        "its sandbox cannot contain {}: Brigade's own state directory is {}, which a sandboxed \
         process must not reach; work in a narrower directory, or move the state with --state or \
         BRIGADE_STATE",
        path.display(),
        state_dir.display()
    ))
}

/// Returns true if the path is the worktree of a task, or in one. Worktrees are in the state
/// directory, and hold nothing of Brigade.
fn is_worktree(state_dir: &Path, path: &Path) -> bool {
    let inner = path.strip_prefix(state_dir.join("worktrees"));
    inner.is_ok_and(|inner| inner.components().count() >= 2)
}

/// Returns the system directory that contains this one.
fn system_dir_containing(dir: &Path) -> Option<PathBuf> {
    let real = SYSTEM_PATHS.iter().filter_map(|path| Path::new(path).canonicalize().ok());
    real.into_iter().find(|path| dir.starts_with(path))
}

fn layer_paths(layer: &SandboxLayer) -> impl Iterator<Item = &Path> {
    as_paths(&layer.write).chain(as_paths(&layer.write_plain)).chain(as_paths(&layer.read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_in_a_system_directory_is_refused() {
        let layer = SandboxLayer { write: vec!["/home/me".into()], ..SandboxLayer::default() };
        for dir in ["/usr/brigade", "/etc/brigade/state", "/opt/brigade", "/usr/lib/brigade"] {
            // A directory that does not exist on this machine is readable by nobody.
            if !Path::new(dir).ancestors().skip(1).take(2).any(Path::exists) {
                continue;
            }
            let refused = check_state_dir_unreachable(Path::new(dir), std::slice::from_ref(&layer));
            let problem = refused.unwrap_err();
            assert!(problem.contains(dir) && problem.contains("--state"), "{problem}");
        }
        assert_eq!(check_state_dir_unreachable(Path::new("/var/lib/brigade"), &[layer]), Ok(()));
    }
}
