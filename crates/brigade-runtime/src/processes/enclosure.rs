//! What a command is kept to, made ready for its shim.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use brigade_model::enclosure::{Confinement, Enclosure, Network, Tcp};
use brigade_process::confine::SYSTEM;
use brigade_process::{
    Companion, Layer, Limits, NamespaceSupport, NetworkAccess, SandboxPlan, SandboxScope, Terminal,
};

use super::environment;
use super::options::ProcessOptions;
use super::places::Places;

/// A terminal that everybody knows, where nobody says which one.
const TERM: &str = "xterm-256color";

#[derive(Debug, Default)]
pub(crate) struct Enclosed {
    pub(crate) limits: Limits,
    pub(crate) terminal: Option<Terminal>,
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

impl Enclosed {
    /// The error says why the command cannot be kept to it; it is not to be started then.
    pub(crate) fn prepare(
        options: &ProcessOptions,
        machine: &Machine,
        enclosure: Option<&Enclosure>,
        paths: ExecutionPaths<'_>,
    ) -> Result<Self, String> {
        let resources = enclosure.map(|enclosure| enclosure.resources).unwrap_or_default();
        let is_bounded_together = make_group(options, resources.memory, paths.dir)?;
        let Some(enclosure) = enclosure else { return Ok(Self::default()) };
        let limits = Limits {
            memory: resources.memory.filter(|_| !is_bounded_together),
            cpu_seconds: resources.cpu_secs,
            open_files: resources.open_files,
        };
        let terminal =
            enclosure.terminal.map(|size| Terminal { rows: size.rows, columns: size.columns });
        let mut enclosed = Self { limits, terminal, ..Self::default() };
        if !enclosure.confinement.is_empty() {
            enclosed.confine(options, machine, &enclosure.confinement, paths)?;
        }
        Ok(enclosed)
    }

    fn confine(
        &mut self,
        options: &ProcessOptions,
        machine: &Machine,
        confinement: &[Confinement],
        own: ExecutionPaths<'_>,
    ) -> Result<(), String> {
        options.landlock.check().map_err(|error| error.to_string())?;
        keeps_out(&options.folder, confinement)?;
        let scratch = Places::make_scratch(own.dir);
        let scratch =
            scratch.map_err(|error| format!("cannot make its scratch folder: {error}"))?;
        let shell = own.shell.canonicalize().ok();
        let layers: Vec<Layer<'_>> = confinement
            .iter()
            .map(|one| Layer {
                read: paths(&one.read).chain(shell.as_deref()).collect(),
                write: paths(&one.write).collect(),
                network: network(one),
            })
            .collect();
        let scope = SandboxScope { layers: &layers, scratch: &scratch, state: &options.folder };
        let namespaces = options.namespaces.unwrap_or_else(|| machine.namespaces());
        let plan = SandboxPlan::make(options.landlock, namespaces, &scope);
        self.sandbox = Some(plan.map_err(|error| error.to_string())?);
        self.scratch = Some(scratch);
        Ok(())
    }
}

/// Makes a control group for the command, where that can be. Returns whether it bounds the memory of all
/// its processes together; otherwise each is bounded by itself.
fn make_group(options: &ProcessOptions, memory: Option<u64>, dir: &Path) -> Result<bool, String> {
    let Some(groups) = &options.control_groups else { return Ok(false) };
    let memory = memory.filter(|_| groups.bounds_memory());
    match groups.make(dir, memory) {
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
pub(crate) struct Machine {
    companion: Companion,
    namespaces: OnceLock<NamespaceSupport>,
}

impl Machine {
    pub(crate) fn new(companion: Companion) -> Self {
        Self { companion, namespaces: OnceLock::new() }
    }

    /// May block for as long as a shim takes to try. Once they were to be had they are taken to be so:
    /// a command that cannot have them then fails. Where they were not, it is tried again.
    fn namespaces(&self) -> NamespaceSupport {
        if let Some(known) = self.namespaces.get() {
            return *known;
        }
        let found = self.companion.namespaces();
        match found.mount.is_available() && found.network.is_available() {
            true => *self.namespaces.get_or_init(|| found),
            false => found,
        }
    }
}

fn network(one: &Confinement) -> NetworkAccess {
    match (one.network, one.tcp) {
        (Network::Denied, _) => NetworkAccess::None,
        (Network::Allowed, Tcp::Denied) => NetworkAccess::NoTcp,
        (Network::Allowed, Tcp::Allowed) => NetworkAccess::All,
    }
}

/// Adds what a command has to know of it to its environment.
pub(crate) fn tell(enclosed: &Enclosed, env: &mut Vec<(OsString, OsString)>) {
    if let Some(scratch) = &enclosed.scratch {
        environment::set(env, "TMPDIR", scratch.into());
    }
    let is_known = env.iter().any(|(name, value)| name == "TERM" && value != "dumb");
    if enclosed.terminal.is_some() && !is_known {
        environment::set(env, "TERM", TERM.into());
    }
}

fn paths(paths: &[std::sync::Arc<str>]) -> impl Iterator<Item = &Path> {
    paths.iter().map(|path| Path::new(&**path))
}

/// Who can reach the state folder can read what others do, and become anybody: no rule can take it
/// out of what is above it. A layer that does not reach it keeps it out of all the others.
fn keeps_out(folder: &Path, confinement: &[Confinement]) -> Result<(), String> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    if let Some(system) = system_above(&folder) {
        return Err(format!(
            "it cannot be confined: Brigade's own state folder is {}, below {}, which every confined \
             command may read; keep the state elsewhere with --state or BRIGADE_STATE",
            folder.display(),
            system.display()
        ));
    }
    let touches = |path: &&Path| folder.starts_with(path) || path.starts_with(&folder);
    let reach = |one| -> Option<&Path> { reached(one).find(touches) };
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
fn system_above(folder: &Path) -> Option<PathBuf> {
    let real = SYSTEM.iter().filter_map(|path| Path::new(path).canonicalize().ok());
    real.into_iter().find(|path| folder.starts_with(path))
}

fn reached(one: &Confinement) -> impl Iterator<Item = &Path> {
    paths(&one.write).chain(paths(&one.read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_folder_in_a_directory_of_the_system_is_within_reach() {
        let confinement = Confinement { write: vec!["/home/me".into()], ..Confinement::default() };
        for folder in ["/usr/brigade", "/etc/brigade/state", "/opt/brigade", "/usr/lib/brigade"] {
            // Where there is no such directory, nothing is readable there.
            if !Path::new(folder).ancestors().skip(1).take(2).any(Path::exists) {
                continue;
            }
            let refused = keeps_out(Path::new(folder), std::slice::from_ref(&confinement));
            let told = refused.unwrap_err();
            assert!(told.contains(folder) && told.contains("--state"), "{told}");
        }
        assert_eq!(keeps_out(Path::new("/var/lib/brigade"), &[confinement]), Ok(()));
    }
}
