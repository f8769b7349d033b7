//! The peers: their packages, versions and builds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use peers_harness::BRIGADE_VARIABLE;

/// A peer as it is listed here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    source: PeerSource,
    /// The colour of its bars, readable on a light and on a dark background.
    pub(crate) colour: &'static str,
}

/// The origin of the measured code.
#[derive(Clone, Copy, Debug)]
enum PeerSource {
    /// A crate of this workspace's lock file.
    Crate(&'static str),
    /// A crate of the lock file of `others`.
    OtherCrate(&'static str),
    /// A program that takes part where it is installed. Its runner knows how to find it.
    Installed,
}

/// All peers, in the order of their turns. Brigade is the first.
pub(crate) const PEERS: [Peer; 11] = [
    Peer { name: "brigade", source: PeerSource::Crate("brigade"), colour: "#d9622b" },
    Peer { name: "tokio", source: PeerSource::Crate("tokio"), colour: "#7d8590" },
    Peer { name: "rusqlite", source: PeerSource::Crate("rusqlite"), colour: "#4d8fd1" },
    Peer { name: "koda", source: PeerSource::OtherCrate("koda-core"), colour: "#3fa266" },
    Peer { name: "durare", source: PeerSource::OtherCrate("durare"), colour: "#9a6fd0" },
    Peer { name: "awaken", source: PeerSource::OtherCrate("awaken-runtime"), colour: "#c09a1e" },
    Peer { name: "restate", source: PeerSource::Installed, colour: "#c2588f" },
    Peer { name: "dbos", source: PeerSource::Installed, colour: "#2f9c9c" },
    Peer { name: "graphile-worker", source: PeerSource::Installed, colour: "#8a9a3b" },
    Peer { name: "pueue", source: PeerSource::Installed, colour: "#a8714a" },
    Peer { name: "tsp", source: PeerSource::Installed, colour: "#6a7fc8" },
];

/// A peer that can run, or the reason why it cannot.
#[derive(Debug)]
pub(crate) struct PeerProgram {
    pub(crate) peer: Peer,
    /// The measured library or program, with its version.
    pub(crate) title: String,
    pub(crate) program: Result<PathBuf, String>,
}

/// Returns the directory `bench/peers`.
pub(crate) fn peers_dir() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Builds each peer. A peer that cannot be built stays in the list with the reason.
pub(crate) fn prepare(build: bool) -> Vec<PeerProgram> {
    let dir = peers_dir();
    PEERS.into_iter().map(|peer| prepare_peer(&dir, peer, build)).collect()
}

fn prepare_peer(dir: &Path, peer: Peer, build: bool) -> PeerProgram {
    let name = format!("peer-{}", peer.name);
    let (workspace, package) = match peer.source {
        PeerSource::Crate(_) => (dir.to_owned(), name.as_str()),
        PeerSource::OtherCrate(_) => (dir.join("others"), name.as_str()),
        PeerSource::Installed => (dir.to_owned(), "peers-programs"),
    };
    let path = dir.join("target/release").join(&name);
    let program = if build && !build_package(&workspace, package) {
        Err("it could not be built".to_owned())
    } else if !path.exists() {
        Err("it was not built".to_owned())
    } else {
        Ok(path)
    };
    match peer.source {
        PeerSource::Crate(library) | PeerSource::OtherCrate(library) => {
            let lock = fs::read_to_string(workspace.join("Cargo.lock")).unwrap_or_default();
            let version = locked_version(&lock, library).unwrap_or("unknown");
            PeerProgram { peer, title: format!("{library} {version}"), program }
        }
        PeerSource::Installed => {
            let version = program.and_then(|path| Ok((read_version(&path)?, path)));
            match version {
                Ok((title, path)) => PeerProgram { peer, title, program: Ok(path) },
                Err(reason) => {
                    PeerProgram { peer, title: peer.name.to_owned(), program: Err(reason) }
                }
            }
        }
    }
}

/// Builds a package and says whether that succeeded.
fn build_package(workspace: &Path, package: &str) -> bool {
    println!("building {package} ...");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--release", "--locked", "--package", package]);
    cargo.current_dir(workspace).status().is_ok_and(|status| status.success())
}

/// Asks a runner for the version of its program, or for the reason why it cannot take part.
fn read_version(runner: &Path) -> Result<String, String> {
    let output = Command::new(runner).arg("version").output().map_err(|error| error.to_string())?;
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    let line = String::from_utf8_lossy(text).lines().last().unwrap_or_default().to_owned();
    if output.status.success() { Ok(line) } else { Err(line) }
}

/// Returns the path of the program `brigade`, which the work `exec` needs: that of the environment
/// variable, else the one that is built here.
pub(crate) fn prepare_brigade(build: bool) -> PathBuf {
    if let Some(path) = std::env::var_os(BRIGADE_VARIABLE) {
        return PathBuf::from(path);
    }
    let dir = peers_dir();
    let root = dir.ancestors().nth(2).unwrap_or(&dir);
    if build && !build_package(root, "brigade-cli") {
        eprintln!("peers: the program `brigade` could not be built");
    }
    root.join("target/release/brigade")
}

/// Returns the version of a crate in a lock file.
fn locked_version<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let (_, entry) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    entry.split('"').next()
}

impl PeerProgram {
    /// Says what was measured, or why nothing was.
    pub(crate) fn state(&self) -> String {
        let state = self.program.as_ref().map_or_else(|reason| reason.as_str(), |_| "measured");
        format!("{}: {state}", self.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_that_of_the_whole_name() {
        let lock =
            "name = \"tokio-util\"\nversion = \"0.7.1\"\n\nname = \"tokio\"\nversion = \"1.2\"\n";
        assert_eq!(locked_version(lock, "tokio"), Some("1.2"));
        assert_eq!(locked_version(lock, "koda"), None);
    }
}
